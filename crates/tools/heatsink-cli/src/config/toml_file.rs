//! The file: TOML, read with the position of every key.
//!
//! Called by: `config::read_file`.
//! Bound: the file is held in memory once; nesting is bounded by the parser.
//! Invariant: broken syntax hides the other mistakes of a file, since what was recovered from
//! it may mean something else; otherwise every mistake is reported, in the order of lines.

use std::ops::Range;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeArray, DeInteger, DeTable, DeValue};

use super::keys::{self, POLICY_KEYS};
use super::nearest::{nearest_path, suggestion};
use super::raw::{Mistake, Place, RawConfig, RawPolicy, RawSetting, RawValue};

/// What the file `name` with this content says.
pub(crate) fn read(name: &str, content: &[u8]) -> RawConfig {
    let name: Arc<str> = Arc::from(name);
    let mut reader = Reader { name, content, raw: RawConfig::default() };
    match std::str::from_utf8(content) {
        Ok(text) => reader.document(text),
        Err(error) => {
            let at = error.valid_up_to();
            reader.mistake(at..at, "the file is not UTF-8 text".to_owned());
        }
    }
    reader.raw.mistakes.sort();
    reader.raw
}

struct Reader<'a> {
    name: Arc<str>,
    content: &'a [u8],
    raw: RawConfig,
}

impl Reader<'_> {
    fn place(&self, span: Range<usize>) -> Place {
        let before = &self.content[..span.start.min(self.content.len())];
        let line = before.split(|byte| *byte == b'\n').count();
        Place::File { file: self.name.clone(), line }
    }

    fn mistake(&mut self, span: Range<usize>, text: String) {
        let place = self.place(span);
        self.raw.mistakes.push(Mistake::at(place, text));
    }

    fn document(&mut self, text: &str) {
        let (table, errors) = DeTable::parse_recoverable(text);
        if errors.is_empty() {
            self.top(table.get_ref());
        }
        let mut seen = Vec::new();
        for error in errors {
            let span = error.span().unwrap_or(0..0);
            let place = self.place(span);
            // What the parser stumbles over next on the same line follows from the first.
            if !seen.contains(&place) {
                seen.push(place.clone());
                let text = error.message().trim().replace('\n', ", ");
                self.raw.mistakes.push(Mistake::at(place, text));
            }
        }
    }

    fn top(&mut self, table: &DeTable<'_>) {
        for (name, value) in table {
            if let Some(key) = keys::find(name.get_ref()) {
                let setting = self.setting(key, name.span(), value);
                self.raw.settings.push(setting);
            } else if keys::is_section(name.get_ref()) {
                self.section(name.get_ref(), name.span(), value.get_ref());
            } else if name.get_ref() == "policy" {
                self.policies(name.span(), value.get_ref());
            } else {
                self.unknown("", name.get_ref(), name.span());
            }
        }
    }

    fn section(&mut self, section: &str, span: Range<usize>, value: &DeValue<'_>) {
        let DeValue::Table(table) = value else {
            let found = raw_value(value);
            return self
                .mistake(span, format!("{section}: {found} is not a table; write [{section}]"));
        };
        for (name, value) in table {
            match keys::find(&format!("{section}.{}", name.get_ref())) {
                Some(key) => {
                    let setting = self.setting(key, name.span(), value);
                    self.raw.settings.push(setting);
                }
                None => self.unknown(section, name.get_ref(), name.span()),
            }
        }
    }

    fn policies(&mut self, span: Range<usize>, value: &DeValue<'_>) {
        let not_tables = "policy: rules are tables; write [[policy]] above each".to_owned();
        let DeValue::Array(rules) = value else { return self.mistake(span, not_tables) };
        for rule in rules as &DeArray<'_> {
            let DeValue::Table(table) = rule.get_ref() else {
                self.mistake(rule.span(), not_tables.clone());
                continue;
            };
            let mut settings = Vec::new();
            for (name, value) in table {
                match POLICY_KEYS.iter().find(|key| key.leaf() == name.get_ref()) {
                    Some(key) => settings.push(self.setting(key, name.span(), value)),
                    None => self.unknown("policy", name.get_ref(), name.span()),
                }
            }
            let place = self.place(rule.span());
            self.raw.policies.push(RawPolicy { place, settings });
        }
    }

    fn setting(
        &self,
        key: &'static keys::Key,
        span: Range<usize>,
        value: &Spanned<DeValue<'_>>,
    ) -> RawSetting {
        RawSetting { key, value: raw_value(value.get_ref()), place: self.place(span) }
    }

    fn unknown(&mut self, section: &str, name: &str, span: Range<usize>) {
        let path = if section.is_empty() { name.to_owned() } else { format!("{section}.{name}") };
        let near = nearest_path(section, name);
        self.mistake(span, format!("unknown key {path:?}{}", suggestion(near.as_deref())));
    }
}

fn raw_value(value: &DeValue<'_>) -> RawValue {
    match value {
        DeValue::String(text) => RawValue::Quoted(text.clone().into_owned()),
        DeValue::Integer(integer) => RawValue::Number(decimal(integer)),
        DeValue::Float(float) => RawValue::Number(float.as_str().to_owned()),
        DeValue::Boolean(switch) => RawValue::Boolean(*switch),
        DeValue::Datetime(_) => RawValue::Other("a date"),
        DeValue::Array(_) => RawValue::Other("an array"),
        DeValue::Table(_) => RawValue::Other("a table"),
    }
}

/// The integer in base ten; one that is too long for that stays as it was written.
fn decimal(integer: &DeInteger<'_>) -> String {
    i128::from_str_radix(integer.as_str(), integer.radix())
        .map_or_else(|_| integer.to_string(), |number| number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mistakes(content: &[u8]) -> Vec<String> {
        read("h.toml", content).mistakes.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn values_come_with_their_lines() {
        let raw = read(
            "h.toml",
            b"workers = 0x10\n\n[limits]\n# note\nmax_clients = 1_000\n\
              [detect]\nretire_fraction = 0.5\n",
        );
        let mut found: Vec<String> = raw
            .settings
            .iter()
            .map(|setting| format!("{} {} {}", setting.place, setting.key.path, setting.value))
            .collect();
        found.sort();
        assert_eq!(
            found,
            [
                "h.toml:1 workers 16",
                "h.toml:5 limits.max_clients 1000",
                "h.toml:7 detect.retire_fraction 0.5"
            ]
        );
        assert!(raw.mistakes.is_empty());
    }

    #[test]
    fn dotted_keys_and_inline_tables_are_sections_too() {
        let raw = read("h.toml", b"limits.max_clients = 5\ndetect = { tick_ms = 9 }\n");
        assert_eq!(raw.settings.len(), 2);
        assert!(raw.mistakes.is_empty());
    }

    #[test]
    fn every_unknown_key_is_named_in_the_order_of_lines() {
        assert_eq!(
            mistakes(
                b"zone = 1\nlisen = \"x\"\n[limits]\nmax_client = 3\n\
                  [limit]\nmax_clients = 3\n[[policy]]\nmatc = \"*\"\n"
            ),
            [
                "h.toml:1: unknown key \"zone\"",
                "h.toml:2: unknown key \"lisen\"; did you mean \"listen\"?",
                "h.toml:4: unknown key \"limits.max_client\"; did you mean \"limits.max_clients\"?",
                "h.toml:5: unknown key \"limit\"; did you mean \"limits\"?",
                "h.toml:8: unknown key \"policy.matc\"; did you mean \"policy.match\"?",
            ]
        );
    }

    #[test]
    fn sections_have_to_be_tables() {
        assert_eq!(
            mistakes(b"limits = 3\npolicy = \"exact\"\n"),
            [
                "h.toml:1: limits: 3 is not a table; write [limits]",
                "h.toml:2: policy: rules are tables; write [[policy]] above each",
            ]
        );
        assert_eq!(
            mistakes(b"policy = [1]\n"),
            ["h.toml:1: policy: rules are tables; write [[policy]] above each"]
        );
    }

    #[test]
    fn broken_syntax_names_its_line() {
        let broken = mistakes(b"workers = 1\nlisten = \n[limits\nlisen = 1\n");
        assert!(broken[0].starts_with("h.toml:2: "), "{broken:?}");
        assert!(broken[1].starts_with("h.toml:3: "), "{broken:?}");
        assert!(!broken.iter().any(|text| text.contains("unknown key")), "{broken:?}");
        let twice = mistakes(b"log = \"warn\"\nlog = \"info\"\n");
        assert!(twice.len() == 1 && twice[0].starts_with("h.toml:2: "), "{twice:?}");
        assert_eq!(mistakes(b"a = 1\n\xff\n"), ["h.toml:2: the file is not UTF-8 text"]);
    }
}
