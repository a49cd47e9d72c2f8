//! Bytes in and out with bounds: numbers of variable length and strings with their length.
//!
//! Invariant: reading never goes past the end, never allocates by what the bytes claim, and
//! never panics.

use super::WireError;

/// Appends a number, seven bits a byte, lowest first.
pub(super) fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Bytes that a number takes.
pub(super) fn number_bytes(number: u64) -> usize {
    (64 - (number | 1).leading_zeros() as usize).div_ceil(7)
}

/// Bytes that a string takes with its length.
pub(super) fn string_bytes(bytes: &[u8]) -> usize {
    number_bytes(bytes.len() as u64) + bytes.len()
}

/// Appends a string with its length.
pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// What is left to read.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) fn byte(&mut self) -> Result<u8, WireError> {
        let (byte, rest) = self.rest.split_first().ok_or(WireError::Short)?;
        self.rest = rest;
        Ok(*byte)
    }

    pub(super) fn number(&mut self) -> Result<u64, WireError> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has room for one bit.
            if shift == 63 && bits > 1 {
                return Err(WireError::TooLarge);
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(WireError::TooLarge)
    }

    /// A string of at most `most` bytes.
    pub(super) fn bytes(&mut self, most: usize) -> Result<&'a [u8], WireError> {
        let len = self.number()?;
        if len > most as u64 {
            return Err(WireError::TooLarge);
        }
        let (bytes, rest) = self.rest.split_at_checked(len as usize).ok_or(WireError::Short)?;
        self.rest = rest;
        Ok(bytes)
    }

    /// A number of things, each at least one byte long.
    pub(super) fn count(&mut self, most: usize) -> Result<usize, WireError> {
        let count = self.number()?;
        if count > most as u64 {
            return Err(WireError::TooLarge);
        }
        if count > self.rest.len() as u64 {
            return Err(WireError::Short);
        }
        Ok(count as usize)
    }

    pub(super) fn end(&self) -> Result<(), WireError> {
        if self.rest.is_empty() { Ok(()) } else { Err(WireError::Trailing) }
    }
}
