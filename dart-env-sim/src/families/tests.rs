use super::*;
use std::collections::BTreeSet;

#[test]
fn placeholder_families_have_names() {
    let names: BTreeSet<_> = of_device(SimDeviceKind::Desktop).map(|f| f.name).collect();
    assert_eq!(names.len(), 10);
}
