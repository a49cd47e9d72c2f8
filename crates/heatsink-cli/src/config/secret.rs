//! Secrets: what may be shown of a URL.

/// `url` with `***` for the password. What comes before the last `@` is distrusted even if
/// the rest makes no sense as a URL.
pub(crate) fn without_password(url: &str) -> String {
    let (scheme, rest) = url.find("://").map_or(("", url), |at| url.split_at(at + 3));
    match rest.rsplit_once('@') {
        None => url.to_owned(),
        Some((login, host)) => match login.split_once(':') {
            Some((user, _)) => format!("{scheme}{user}:***@{host}"),
            None => format!("{scheme}{login}@{host}"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::without_password;

    #[test]
    fn only_the_password_is_hidden() {
        for (url, shown) in [
            ("embedded://", "embedded://"),
            ("redis://h:1/2", "redis://h:1/2"),
            ("redis://bob@h", "redis://bob@h"),
            ("redis://bob:secret@h:1/2", "redis://bob:***@h:1/2"),
            ("redis://:secret@h", "redis://:***@h"),
            ("redis://bob:se@cr:et@h", "redis://bob:***@h"),
            ("bob:secret@h", "bob:***@h"),
        ] {
            assert_eq!(without_password(url), shown);
        }
    }
}
