"""What each request needs permission for, and what it is answered without. Imported only if
`authorizer.class.name` is set: without an authorizer requests go to their handlers directly."""
