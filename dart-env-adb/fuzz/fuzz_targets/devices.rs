//! Lists of devices.

#![no_main]

use dart_env_adb::wire::devices::{self, DeviceState};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Ok(list) = devices::parse(data) else {
        return;
    };
    for info in list {
        assert!(!info.serial.is_empty());
        // A state is written as it is read, but for what follows "no permissions".
        assert_eq!(DeviceState::parse(&info.state.to_string()), info.state);
    }
});
