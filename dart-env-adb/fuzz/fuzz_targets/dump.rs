//! Dumps of the user interface: never an empty list of elements, and no element without area has
//! bounds.

#![no_main]

use dart_env_adb::device::parse_dump;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Ok(nodes) = parse_dump(data) else {
        return;
    };
    assert!(!nodes.is_empty());
    for node in nodes {
        if let Some(element) = node.element() {
            assert!(element.bounds.width > 0 && element.bounds.height > 0);
        }
    }
});
