//! The wire protocol of the bridge, without any I/O.
