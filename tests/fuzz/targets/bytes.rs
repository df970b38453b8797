//! Any bytes as a line from a client, and as one from the extension.

#![no_main]

use leasekeeper_wire::{Request, ServerLine};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // What is read as a request is written as one that reads the same.
    if let Ok(request) = Request::decode(bytes) {
        assert_eq!(Request::decode(request.encode().trim_end().as_bytes()), Ok(request));
    }
    let _ = ServerLine::decode(bytes);
});
