//! Seeds made from seeds, without any shared generator: the n-th is the same however many tasks
//! ask and in whichever order.

/// The finaliser of splitmix64 (Steele, Lea and Flood, OOPSLA 2014), applied to `seed` and `index`.
pub(crate) const fn derive(seed: u64, index: u64) -> u64 {
    let mut z = seed.wrapping_add(index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A seed from a name (FNV-1a, then the finaliser).
pub(crate) fn of_name(name: &str) -> u64 {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    derive(hash, 0)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn steps_and_rollouts_draw_differently() {
        let seeds: BTreeSet<u64> = (0..64)
            .flat_map(|seed| (0..64).map(move |index| derive(seed, index)))
            .collect();
        assert_eq!(seeds.len(), 64 * 64);
        // First output of the reference implementation with state 0.
        assert_eq!(derive(0, 0), 0xe220_a839_7b1d_cdaf);
    }
}
