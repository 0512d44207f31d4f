//! Short lists of plain values.

use std::ops::Deref;

/// A list of at most `N` values, `N` below 256. It is `Copy`, so that a ring moves it as plain
/// bytes and drops nothing: `ArrayVec` has a destructor and clones its elements one by one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Few<T, const N: usize> {
    /// The rest is filled with default values.
    items: [T; N],
    len: u8,
}

impl<T: Copy + Default, const N: usize> Default for Few<T, N> {
    #[inline]
    fn default() -> Self {
        const { assert!(N < 256) }
        Self { items: [T::default(); N], len: 0 }
    }
}

impl<T: Copy + Default, const N: usize> Few<T, N> {
    /// A copy of the slice, if it is short enough.
    #[inline]
    pub(crate) fn from_slice(slice: &[T]) -> Option<Self> {
        let mut few = Self::default();
        few.items.get_mut(..slice.len())?.copy_from_slice(slice);
        few.len = slice.len() as u8;
        Some(few)
    }

    /// Removes all values.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    /// Adds a value.
    ///
    /// # Panics
    /// If the list is full.
    #[inline]
    pub(crate) fn push(&mut self, item: T) {
        self.items[usize::from(self.len)] = item;
        self.len += 1;
    }
}

impl<T, const N: usize> Deref for Few<T, N> {
    type Target = [T];
    #[inline]
    fn deref(&self) -> &[T] {
        &self.items[..usize::from(self.len)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_what_was_put_in_and_no_more() {
        let mut few = Few::<u16, 3>::default();
        assert!(few.is_empty());
        few.push(7);
        few.push(8);
        assert_eq!(few[..], [7, 8]);
        let copy = few;
        few.push(9);
        assert_eq!((&copy[..], &few[..]), (&[7, 8][..], &[7, 8, 9][..]));
        assert_eq!(Few::<u16, 3>::from_slice(&few).as_deref(), Some(&[7, 8, 9][..]));
        assert!(Few::<u16, 2>::from_slice(&few).is_none());
        assert!(std::panic::catch_unwind(move || few.push(10)).is_err());
    }
}
