//! What a network, a bad client or an attacker does to well-formed bytes.

use fastrand::Rng;

/// Longest mutant; everything of interest happens in a few hundred bytes.
const MAX_BYTES: usize = 4096;

/// Bytes that mean something to the protocol.
const MARKS: &[u8] = b"\r\n*$+-:_#,(=!~>%|0123456789 \"'\\\0";

/// Numbers at which something may change: signs, limits, widths.
const NUMBERS: &[&str] = &[
    "-2",
    "-1",
    "-0",
    "0",
    "1",
    "2",
    "3",
    "4",
    "5",
    "00",
    "+1",
    "64",
    "65",
    "1048576",
    "1048577",
    "536870912",
    "536870913",
    "4294967296",
    "1099511627776",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "18446744073709551615",
    "184467440737095516150",
];

/// One of `corpus`, changed up to four times (rarely not at all).
pub(crate) fn mutant(corpus: &[&[u8]], rng: &mut Rng) -> Vec<u8> {
    let mut data = pick(corpus, rng).to_vec();
    for _ in 0..rng.usize(0..=4) {
        match rng.u32(0..9) {
            0 => flip_bit(&mut data, rng),
            1 => put_mark(&mut data, rng),
            2 | 3 => change_number(&mut data, rng),
            4 => cut(&mut data, rng),
            5 => drop_range(&mut data, rng),
            6 => repeat_range(&mut data, rng),
            7 => splice(&mut data, pick(corpus, rng), rng),
            _ => data.extend_from_slice(pick(corpus, rng)),
        }
        data.truncate(MAX_BYTES);
    }
    data
}

fn pick<'a>(corpus: &[&'a [u8]], rng: &mut Rng) -> &'a [u8] {
    corpus[rng.usize(..corpus.len())]
}

fn flip_bit(data: &mut [u8], rng: &mut Rng) {
    if !data.is_empty() {
        data[rng.usize(..data.len())] ^= 1 << rng.u32(..8);
    }
}

/// Sets or inserts a byte that means something.
fn put_mark(data: &mut Vec<u8>, rng: &mut Rng) {
    let mark = MARKS[rng.usize(..MARKS.len())];
    let at = rng.usize(..=data.len());
    if at < data.len() && rng.bool() {
        data[at] = mark;
    } else {
        data.insert(at, mark);
    }
}

/// Replaces a run of digits.
fn change_number(data: &mut Vec<u8>, rng: &mut Rng) {
    let starts: Vec<usize> = (0..data.len())
        .filter(|&at| data[at].is_ascii_digit() && (at == 0 || !data[at - 1].is_ascii_digit()))
        .collect();
    if starts.is_empty() {
        return;
    }
    let start = starts[rng.usize(..starts.len())];
    let len = data[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    data.splice(start..start + len, NUMBERS[rng.usize(..NUMBERS.len())].bytes());
}

fn cut(data: &mut Vec<u8>, rng: &mut Rng) {
    data.truncate(rng.usize(..=data.len()));
}

fn range(len: usize, rng: &mut Rng) -> std::ops::Range<usize> {
    let start = rng.usize(..=len);
    start..rng.usize(start..=len.min(start + 32))
}

fn drop_range(data: &mut Vec<u8>, rng: &mut Rng) {
    data.drain(range(data.len(), rng));
}

fn repeat_range(data: &mut Vec<u8>, rng: &mut Rng) {
    let range = range(data.len(), rng);
    let at = range.end;
    let again = data[range].repeat(rng.usize(1..=40));
    data.splice(at..at, again);
}

/// Goes on as another sample does.
fn splice(data: &mut Vec<u8>, other: &[u8], rng: &mut Rng) {
    data.truncate(rng.usize(..=data.len()));
    data.extend_from_slice(&other[rng.usize(..=other.len())..]);
}
