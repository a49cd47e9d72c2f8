//! Secrets: what may be shown of a URL.

/// `url` with `***` for passwords: the one before the hosts, and the whole query, which may
/// hold another. What comes before the last `@` is distrusted even if the rest makes no sense
/// as a URL.
pub(crate) fn without_password(url: &str) -> String {
    let (scheme, rest) = url.find("://").map_or(("", url), |at| url.split_at(at + 3));
    let (login, rest) = match rest.rsplit_once('@') {
        None => (String::new(), rest),
        // The @ may be part of a password in the query: nothing behind it can be trusted.
        Some((login, _)) if login.contains('?') => {
            let end = login.find([':', '?']).unwrap_or(login.len());
            return format!("{scheme}{}***@***", &login[..=end]);
        }
        Some((login, rest)) => match login.split_once(':') {
            Some((user, _)) => (format!("{user}:***@"), rest),
            None => (format!("{login}@"), rest),
        },
    };
    match rest.split_once('?') {
        None => format!("{scheme}{login}{rest}"),
        Some((rest, _)) => format!("{scheme}{login}{rest}?***"),
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
            ("redis+cluster://bob:secret@h:1,i:2", "redis+cluster://bob:***@h:1,i:2"),
            (
                "redis+sentinel://bob:secret@h/m/1?sentinel_password=secret",
                "redis+sentinel://bob:***@h/m/1?***",
            ),
            ("redis+sentinel://h:1/m?sentinel_password=a@b", "redis+sentinel://h:***@***"),
            ("redis://bob:se?cret@h", "redis://bob:***@***"),
        ] {
            assert_eq!(without_password(url), shown);
        }
    }
}
