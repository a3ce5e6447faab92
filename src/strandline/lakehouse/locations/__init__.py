"""Where tables lie: on this machine or in object stores, and what can be done there."""
