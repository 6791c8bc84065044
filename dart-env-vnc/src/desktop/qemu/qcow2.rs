//! An empty qcow2 image (QEMU's docs/interop/qcow2.txt, version 3): somewhere to keep snapshots of a
//! machine without a disk of its own.

const CLUSTER_BITS: u32 = 16;
const CLUSTER: usize = 1 << CLUSTER_BITS;

/// Bytes that the entries of one level-1 table entry cover: a cluster of 8-byte entries, each of
/// one cluster.
const PER_L1_ENTRY: u64 = (CLUSTER as u64 / 8) << CLUSTER_BITS;

/// The image of an empty disk of `bytes`, in four clusters: header, table of reference counts, a
/// block of them, level-1 table.
pub(super) fn empty(bytes: u64) -> Vec<u8> {
    let mut image = vec![0; 4 * CLUSTER];
    let mut put = |at: usize, field: &[u8]| image[at..at + field.len()].copy_from_slice(field);
    let at_cluster = |number: u64| (number << CLUSTER_BITS).to_be_bytes();
    put(0, b"QFI\xfb");
    put(4, &3u32.to_be_bytes());
    put(20, &CLUSTER_BITS.to_be_bytes());
    put(24, &bytes.to_be_bytes());
    put(36, &(bytes.div_ceil(PER_L1_ENTRY) as u32).to_be_bytes());
    put(40, &at_cluster(3));
    put(48, &at_cluster(1));
    put(56, &1u32.to_be_bytes());
    // Reference counts of 2^4 bits; a header of 104 bytes.
    put(96, &4u32.to_be_bytes());
    put(100, &104u32.to_be_bytes());
    put(CLUSTER, &at_cluster(2));
    for cluster in 0..4 {
        put(2 * CLUSTER + 2 * cluster, &1u16.to_be_bytes());
    }
    image
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_that_of_the_specification() {
        let image = empty(1 << 30);
        assert_eq!(image.len(), 4 * CLUSTER);
        assert_eq!(image[..8], *b"QFI\xfb\0\0\0\x03");
        // A level-1 entry covers 512 MiB.
        assert_eq!(image[36..40], [0, 0, 0, 2]);
        assert_eq!(image[40..48], [0, 0, 0, 0, 0, 3, 0, 0]);
    }
}
