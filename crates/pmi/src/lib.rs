//! PMI-1, the process management interface: wire format, server and client.
