//! Increments of numbers with a point: combined as long as there is nothing behind it.
//!
//! Called by: `pool`, for batches of `ZINCRBY` and of `INCRBYFLOAT`.
//! Bound: the sum of a batch, and the value that it is added to, are within [`WHOLE_MAX`].
//! Invariant: a batch is executed only if every sum on the way is a whole number that a double
//! holds exactly; then the sum of several is what one by one they come to, to the last digit.
//!
//! A server adds these numbers as doubles (`ZINCRBY`) or long doubles (`INCRBYFLOAT`) and rounds
//! after each. Whether that matters depends on the value that is there when the batch is
//! executed, which nobody knows before. So the batch is a script: it looks at the value first,
//! and refuses before anything is changed if it is not whole, or too large. What is refused goes
//! one by one, like any batch that a server refuses: for its type, for a right that is missing,
//! or because it runs no scripts.
//!
//! What is not a whole number itself is not combined. A script could add such numbers one by one
//! and answer each, but it takes the server longer than the commands would.

use super::change::request;

/// Neither an increment, nor the sum of a batch, nor the value before it is beyond this, so the
/// value after it is within 2^52. All of them are written without an exponent.
pub(super) const WHOLE_MAX: i64 = 1_000_000_000_000_000;

const SCORE: &[u8] = b"local s=redis.call('ZSCORE',KEYS[1],ARGV[2])\n\
    if s then s=tonumber(s) if s%1~=0 or s>1e15 or s<-1e15 then \
    return redis.error_reply('HEATSINK not a whole number') end end\n\
    return redis.call('ZINCRBY',KEYS[1],ARGV[1],ARGV[2])";
const STRING: &[u8] = b"local s=redis.call('GET',KEYS[1])\n\
    if s and (#s>15 or not string.find(s,'^-?%d+$')) then \
    return redis.error_reply('HEATSINK not a whole number') end\n\
    return redis.call('INCRBYFLOAT',KEYS[1],ARGV[1])";

/// Appends the request of a batch: for a member of a sorted set, or for a string.
pub(super) fn encode(out: &mut Vec<u8>, key: &[u8], member: Option<&[u8]>, total: &[u8]) {
    match member {
        Some(member) => request(out, &[b"EVAL", SCORE, b"1", key, total, member]),
        None => request(out, &[b"EVAL", STRING, b"1", key, total]),
    }
}
