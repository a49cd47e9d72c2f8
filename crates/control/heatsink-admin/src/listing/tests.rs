use heatsink_control::entry::Entry;

use super::*;

fn hot(key: &[u8], frequency: f64) -> HotKey {
    let entry = Entry {
        mitigation: Mitigation::LocalCache,
        split_factor: 1,
        ttl_seconds: Some(60),
        origin: Origin::Auto,
        status: Status::Active,
        reason: String::new(),
        dry_run: false,
        frequency,
        reads_per_second: frequency,
        writes_per_second: 0.0,
        detected_at_ms: frequency as u64,
        split: None,
        pause: None,
    };
    HotKey { key: key.to_vec(), entry, guard: None }
}

fn keys(page: &Page) -> Vec<String> {
    page.items.iter().map(|hot| String::from_utf8_lossy(&hot.key).into_owned()).collect()
}

fn all_pages(all: &[HotKey], parameters: &str, privacy: Privacy) -> Vec<String> {
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let listing = Listing::parse(Some(&format!("{parameters}{cursor}")), privacy).unwrap();
        let page = listing.page(all.to_vec());
        assert_eq!(page.total, all.len());
        seen.extend(keys(&page));
        match page.next_cursor {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return seen,
        }
    }
}

#[test]
fn pages_of_any_size_show_every_key_once_in_order() {
    let all: Vec<HotKey> =
        (0..57_u32).map(|n| hot(format!("key:{n:02}").as_bytes(), f64::from(n / 10))).collect();
    for sort in ["frequency", "detected_at", "key"] {
        for privacy in [Privacy::Plain, Privacy::Hash] {
            let whole = all_pages(&all, &format!("sort={sort}"), privacy);
            assert_eq!(whole.len(), 57);
            for limit in [1, 7, 56, 57, 58] {
                let paged = all_pages(&all, &format!("sort={sort}&limit={limit}"), privacy);
                assert_eq!(paged, whole, "{sort} {limit}");
            }
        }
    }
    let by_rate = all_pages(&all, "limit=5", Privacy::Plain);
    assert!(by_rate[0].starts_with("key:5") && by_rate[56].starts_with("key:0"));
    assert!(all_pages(&all, "sort=key", Privacy::Plain).is_sorted());
}

#[test]
fn a_key_that_leaves_between_two_pages_hides_no_other() {
    let all = vec![hot(b"a", 3.0), hot(b"b", 2.0), hot(b"c", 1.0)];
    let first = Listing::parse(Some("limit=2"), Privacy::Plain).unwrap().page(all.clone());
    assert_eq!(keys(&first), ["a", "b"]);
    let next = format!("limit=2&cursor={}", first.next_cursor.unwrap());
    let left = vec![all[0].clone(), all[2].clone()];
    let second = Listing::parse(Some(&next), Privacy::Plain).unwrap().page(left);
    assert_eq!(keys(&second), ["c"]);
    assert_eq!(second.next_cursor, None);
}

#[test]
fn filters_narrow_and_join() {
    let mut all = vec![hot(b"user:1", 3.0), hot(b"user:2", 2.0), hot(b"cart:1", 1.0)];
    all[1].entry.status = Status::Cooling;
    all[2].entry.origin = Origin::Manual;
    all[2].entry.mitigation = Mitigation::Split;
    let list =
        |query: &str| keys(&Listing::parse(Some(query), Privacy::Plain).unwrap().page(all.clone()));
    assert_eq!(list("prefix=user%3A"), ["user:1", "user:2"]);
    assert_eq!(list("match=*:1"), ["user:1", "cart:1"]);
    assert_eq!(list("status=cooling"), ["user:2"]);
    assert_eq!(list("status=cooling,active&origin=manual"), ["cart:1"]);
    assert_eq!(list("mitigation_type=split&match=user*"), [""; 0]);
}

#[test]
fn mistakes_are_refused() {
    for query in [
        "limit=0",
        "limit=1001",
        "limit=x",
        "sort=heat",
        "status=hot",
        "origin=",
        "cursor=zz",
        "colour=red",
        "prefix=a&prefix=b",
    ] {
        assert_eq!(
            Listing::parse(Some(query), Privacy::Plain).unwrap_err().status(),
            400,
            "{query}"
        );
    }
    let other_sort = Listing::parse(Some("limit=1"), Privacy::Plain)
        .unwrap()
        .page(vec![hot(b"a", 1.0), hot(b"b", 1.0)])
        .next_cursor
        .unwrap();
    assert!(
        Listing::parse(Some(&format!("sort=key&cursor={other_sort}")), Privacy::Plain).is_err()
    );
}

#[test]
fn hidden_keys_cannot_be_spelled_out_by_prefixes_or_cursors() {
    for query in ["prefix=u", "match=u*"] {
        assert_eq!(Listing::parse(Some(query), Privacy::Hash).unwrap_err().status(), 422);
    }
    let all = vec![hot(b"user:1", 1.0), hot(b"user:2", 1.0)];
    for sort in ["key", "frequency"] {
        let query = format!("limit=1&sort={sort}");
        let page = Listing::parse(Some(&query), Privacy::Hash).unwrap().page(all.clone());
        let cursor = URL_SAFE_NO_PAD.decode(page.next_cursor.unwrap()).unwrap();
        assert!(!cursor.windows(4).any(|part| part == b"user"));
    }
}
