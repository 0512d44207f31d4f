//! Addresses of values, for who wants their memory fetched before it is needed.

/// Calls `see` with the address and the length of the first `n` values.
#[inline]
pub(crate) fn first<T>(see: &mut impl FnMut(*const u8, usize), values: &[T], n: usize) {
    let values = values.get(..n).unwrap_or(values);
    debug_assert!(values.len() <= n, "no more than asked for");
    see(values.as_ptr().cast(), size_of_val(values));
}

#[cfg(test)]
mod tests {
    use super::first;

    #[test]
    fn tells_of_as_many_values_as_there_are_and_as_are_asked_for() {
        let values = [1u64, 2, 3];
        for (n, bytes) in [(0, 0), (2, 16), (3, 24), (9, 24)] {
            let mut seen = Vec::new();
            first(&mut |at: *const u8, len| seen.push((at, len)), &values, n);
            assert_eq!(seen, [(values.as_ptr().cast(), bytes)]);
        }
    }
}
