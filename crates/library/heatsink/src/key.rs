//! Keys as the bytes that name them in the shared tier.

use std::borrow::Cow;
use std::sync::Arc;

/// A key of the shared tier.
///
/// Numbers are written in decimal, text and bytes as they are; parts of a tuple are separated by
/// `:`. Two keys that are equal write the same bytes, two that are not never do.
///
/// ```
/// use heatsink::Key;
///
/// #[derive(Clone, PartialEq, Eq, Hash)]
/// struct UserId(u64);
///
/// impl Key for UserId {
///     fn write_to(&self, out: &mut Vec<u8>) {
///         self.0.write_to(out);
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no key of a shared tier",
    note = "implement `heatsink::Key` for it; wrap a type of another crate in one of your own"
)]
pub trait Key {
    /// Appends the bytes.
    fn write_to(&self, out: &mut Vec<u8>);
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl Key for $number {
            fn write_to(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(self.to_string().as_bytes());
            }
        }
    )*};
}

numbers!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize bool char);

impl Key for str {
    fn write_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.as_bytes());
    }
}

impl Key for [u8] {
    fn write_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
}

macro_rules! pointers {
    ($($pointer:ty)*) => {$(
        impl Key for $pointer {
            fn write_to(&self, out: &mut Vec<u8>) {
                (**self).write_to(out);
            }
        }
    )*};
}

pointers!(String Box<str> Arc<str> &str Cow<'_, str> Vec<u8> Box<[u8]> Arc<[u8]> &[u8]);

/// A part of a tuple: separators in it are escaped, or ("a:b", "c") would be ("a", "b:c").
fn write_part(part: &impl Key, out: &mut Vec<u8>) {
    let start = out.len();
    part.write_to(out);
    if out[start..].iter().any(|byte| matches!(byte, b':' | b'%')) {
        for byte in out.split_off(start) {
            match byte {
                b':' => out.extend_from_slice(b"%3A"),
                b'%' => out.extend_from_slice(b"%25"),
                _ => out.push(byte),
            }
        }
    }
}

impl<A: Key, B: Key> Key for (A, B) {
    fn write_to(&self, out: &mut Vec<u8>) {
        write_part(&self.0, out);
        out.push(b':');
        write_part(&self.1, out);
    }
}

impl<A: Key, B: Key, C: Key> Key for (A, B, C) {
    fn write_to(&self, out: &mut Vec<u8>) {
        write_part(&self.0, out);
        out.push(b':');
        write_part(&self.1, out);
        out.push(b':');
        write_part(&self.2, out);
    }
}

#[cfg(test)]
mod tests {
    use super::Key;

    fn written(key: &impl Key) -> String {
        let mut out = Vec::new();
        key.write_to(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn keys_are_readable_and_never_fall_together() {
        assert_eq!(written(&42_u64), "42");
        assert_eq!(written(&("eu", -7)), "eu:-7");
        assert_eq!(written(&("a:b", "c", 1)), "a%3Ab:c:1");
        assert_ne!(written(&("a:b", "c")), written(&("a", "b:c")));
        assert_ne!(written(&("a%3Ab", "c")), written(&("a:b", "c")));
        assert_ne!(written(&(("a", "b"), "c")), written(&("a", ("b", "c"))));
    }
}
