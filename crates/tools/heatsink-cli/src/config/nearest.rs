//! The nearest known name to a misspelt one, if any is near enough to be meant.

use super::keys::{KEYS, Key, POLICY_KEYS, SECTIONS};

/// The one of `known` that was probably meant by `typed`: at most a third of its letters
/// wrong, and at least one may be.
pub(crate) fn nearest<'a>(typed: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |name: &str| name.to_ascii_lowercase().replace('-', "_");
    let typed = plain(typed);
    let wrong_max = (typed.chars().count() / 3).max(1);
    known
        .map(|name| (strsim::damerau_levenshtein(&typed, &plain(name)), name))
        .filter(|(wrong, _)| *wrong <= wrong_max)
        .min_by_key(|(wrong, _)| *wrong)
        .map(|(_, name)| name)
}

/// The full path of the key or section probably meant by `name` in `section`: one of the
/// same section, or else one of that name elsewhere.
pub(crate) fn nearest_path(section: &str, name: &str) -> Option<String> {
    let all = || KEYS.iter().chain(&POLICY_KEYS);
    let mut here: Vec<&str> = all().filter(|key| key.section() == section).map(Key::leaf).collect();
    if section.is_empty() {
        here.extend(SECTIONS.iter().map(|(section, _)| *section));
        here.push("policy");
    }
    if let Some(leaf) = nearest(name, here.into_iter().filter(|known| !known.is_empty())) {
        return Some(if section.is_empty() {
            leaf.to_owned()
        } else {
            format!("{section}.{leaf}")
        });
    }
    let leaf = nearest(name, KEYS.iter().map(Key::leaf))?;
    KEYS.iter().find(|key| key.leaf() == leaf).map(|key| key.path.to_owned())
}

/// The end of a message: `; did you mean "listen"?`, or nothing.
pub(crate) fn suggestion(name: Option<&str>) -> String {
    name.map_or_else(String::new, |name| format!("; did you mean {name:?}?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_close_is_suggested() {
        for (section, typed, path) in [
            ("", "lisen", Some("listen")),
            ("", "log-format", Some("log_format")),
            ("", "limit", Some("limits")),
            ("", "polcy", Some("policy")),
            ("limits", "max_client", Some("limits.max_clients")),
            ("policy", "mod", Some("policy.mode")),
            ("", "max_clients", Some("limits.max_clients")),
            ("limits", "listen", Some("listen")),
            ("", "colour", None),
            ("", "x", None),
        ] {
            assert_eq!(nearest_path(section, typed).as_deref(), path, "{section} {typed}");
        }
    }
}
