// A run as an address: the script is in the fragment, which a browser sends to no server.
export function labLink(script) {
  return `#/lab/${encodeURIComponent(script)}`;
}
