//! Big-endian fields at constant offsets of fixed arrays. An offset out of range is a compile
//! error, so the functions below need no check at run time.

/// Reads the `W` bytes at `AT`.
#[inline(always)]
fn get<const AT: usize, const W: usize, const N: usize>(b: &[u8; N]) -> [u8; W] {
    const { assert!(AT + W <= N, "field lies outside of its block") };
    let mut field = [0; W];
    field.copy_from_slice(&b[AT..AT + W]);
    field
}

/// Writes `field` at `AT`.
#[inline(always)]
pub fn put<const AT: usize, const W: usize, const N: usize>(b: &mut [u8; N], field: [u8; W]) {
    const { assert!(AT + W <= N, "field lies outside of its block") };
    b[AT..AT + W].copy_from_slice(&field);
}

/// Reads one byte at `AT`.
#[inline(always)]
pub fn u8_at<const AT: usize, const N: usize>(b: &[u8; N]) -> u8 {
    const { assert!(AT < N, "field lies outside of its block") };
    b[AT]
}

/// Reads 16 bits at `AT`.
#[inline(always)]
pub fn u16_at<const AT: usize, const N: usize>(b: &[u8; N]) -> u16 {
    u16::from_be_bytes(get::<AT, 2, N>(b))
}

/// Reads 32 bits at `AT`.
#[inline(always)]
pub fn u32_at<const AT: usize, const N: usize>(b: &[u8; N]) -> u32 {
    u32::from_be_bytes(get::<AT, 4, N>(b))
}

/// Reads 64 bits at `AT`.
#[inline(always)]
pub fn u64_at<const AT: usize, const N: usize>(b: &[u8; N]) -> u64 {
    u64::from_be_bytes(get::<AT, 8, N>(b))
}

/// Whether the three reserved bytes from `AT` on are zero.
#[inline(always)]
pub fn reserved3_at<const AT: usize, const N: usize>(b: &[u8; N]) -> bool {
    get::<AT, 3, N>(b) == [0; 3]
}

/// Implements the conversion of an enum from its number, and the list of its values. A variant that
/// is missing from the list does not compile.
macro_rules! wire_enum {
    ($name:ident: $($variant:ident),+ $(,)?) => {
        impl $name {
            /// Every value that version 1 defines, in the order of their numbers.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The value with this number, if version 1 defines one.
            #[inline]
            pub const fn from_wire(number: u8) -> Option<Self> {
                $(if number == Self::$variant as u8 {
                    return Some(Self::$variant);
                })+
                None
            }
        }
        const _: fn($name) = |value| match value {
            $($name::$variant => {})+
        };
    };
}
pub(crate) use wire_enum;
