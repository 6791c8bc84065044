//! What the suites on a real ADB server need: `adb`, a server of their own, a simulated phone.
