//! `INFO` of several nodes as that of one server.
//!
//! Called by: `join`.
//! Invariant: sections and fields stand in the first node's order. A field that only another
//! node has is added if it belongs to a family that adds up (`dbN`, `cmdstat_*`,
//! `errorstat_*`), and left out if it does not: nothing is said of the whole that only
//! holds for one node other than the first.

mod rule;

use std::collections::HashMap;

use foldhash::fast::FixedState;
use heatsink_resp::encode;
use rule::{Rule, database};

use crate::frame::text;

/// Joins bulk or verbatim strings into one of the first one's kind.
pub(super) fn join(parts: &[&[u8]]) -> Option<Vec<u8>> {
    let nodes: Vec<_> =
        parts.iter().map(|part| text(part).map(String::from_utf8_lossy)).collect::<Option<_>>()?;
    let mut sections = gather(nodes.iter().map(|node| &**node));
    for section in &mut sections {
        if section.name == "Keyspace" {
            section.fields.sort_by_key(|field| database(field.name));
        }
    }
    let info = write(&sections);
    let mut out = Vec::with_capacity(info.len() + 32);
    if parts[0][0] == b'=' {
        encode::header(&mut out, b'=', info.len() + 4);
        out.extend_from_slice(b"txt:");
        out.extend_from_slice(info.as_bytes());
        out.extend_from_slice(b"\r\n");
    } else {
        encode::bulk(&mut out, info.as_bytes());
    }
    Some(out)
}

struct Section<'a> {
    name: &'a str,
    fields: Vec<Field<'a>>,
}

struct Field<'a> {
    name: &'a str,
    /// One a node that has the field, in the order of the nodes.
    values: Vec<&'a str>,
}

fn gather<'a>(nodes: impl Iterator<Item = &'a str>) -> Vec<Section<'a>> {
    let mut sections: Vec<Section> = Vec::new();
    let mut places = HashMap::<(usize, &str), usize, FixedState>::default();
    for (node, info) in nodes.enumerate() {
        let mut section = None;
        for line in info.lines().filter(|line| !line.is_empty()) {
            let name = line.strip_prefix("# ");
            let at = *section.insert(match (name, section) {
                (None, Some(at)) => at,
                _ => section_index(&mut sections, name.unwrap_or_default()),
            });
            if name.is_some() {
                continue;
            }
            let Some((name, value)) = line.split_once(':') else { continue };
            let fields = &mut sections[at].fields;
            match places.get(&(at, name)) {
                Some(field) if node > 0 => fields[*field].values.push(value),
                None if node > 0 && !Rule::of(name).adds_fields() => {}
                // Two modules of one node are two fields of one name.
                _ => {
                    places.entry((at, name)).or_insert(fields.len());
                    fields.push(Field { name, values: vec![value] });
                }
            }
        }
    }
    sections
}

fn section_index<'a>(sections: &mut Vec<Section<'a>>, name: &'a str) -> usize {
    sections.iter().position(|section| section.name == name).unwrap_or_else(|| {
        sections.push(Section { name, fields: Vec::new() });
        sections.len() - 1
    })
}

fn write(sections: &[Section]) -> String {
    let mut sums = HashMap::<&str, f64, FixedState>::default();
    for field in sections.iter().flat_map(|section| &section.fields) {
        if let Rule::Sum | Rule::Limit = Rule::of(field.name) {
            let sum = Rule::of(field.name).apply(&field.values, |_| None);
            sums.insert(field.name, sum.parse().unwrap_or_default());
        }
    }
    let mut info = String::new();
    for section in sections {
        if !info.is_empty() {
            info.push_str("\r\n");
        }
        if !section.name.is_empty() {
            info.extend(["# ", section.name, "\r\n"]);
        }
        for Field { name, values } in &section.fields {
            let value = Rule::of(name).apply(values, |sum| sums.get(sum).copied());
            info.extend([name, ":", &value, "\r\n"]);
        }
    }
    info
}

#[cfg(test)]
mod tests;
