//! What the documents name exists: files, crates, types, functions, constants, settings, headings.
//!
//! The tests read the documents at the root (but for the changelog), deploy/README.md and everything under
//! docs/, and check their links, their names in backticks, and their `cargo` commands.
//!
//! | in a document | must be |
//! |---|---|
//! | a link to a file, with or without a `#heading` | there |
//! | `hot/reads.rs`, `docs/adr`, `heatsink-split/src/plan` | the end of a path in the tree |
//! | `heatsink-proxy`, `cargo test -p heatsink-proxy --test name` | a package, a target of it |
//! | `LocalCache`, `go_elsewhere`, `limits.max_clients`, `MAX_SPARE` | words of sources, comments aside |
//! | `Order::reserve` | words of one source |
//! | `MAX_SPARE` 32, `GATHER_TIME` 300 µs | a constant of that value |
//!
//! Bound: names. Whether a document says the truth about them, a reader has to judge.

#![expect(
    clippy::case_sensitive_file_extension_comparisons,
    reason = "names of files here are in lower case"
)]

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// What documents name although nothing here is called so: whose it is, and its names.
const FOREIGN: &[(&str, &[&str])] = &[
    (
        "the operating system's",
        &[
            "epoll_wait",
            "sched_setattr",
            "tcp_migrate_req",
            "SO_REUSEPORT",
            "SO_PEERCRED",
            "SCM_RIGHTS",
            "SIGSTOP",
        ],
    ),
    ("programs that measure", &["perf", "taskset", "chrt"]),
    ("crates that were turned down", &["sqlx", "charming", "plotly", "figment"]),
    (
        "other caches', in how to come from them",
        &[
            "time_to_idle",
            "get_with(key, future)",
            "try_get_with",
            "optionally_get_with",
            "eviction_listener",
            "sync_writes",
            "cache_err",
            "cache_none",
            "result_fallback",
            "AsyncRedisCache",
        ],
    ),
    (
        "Redis's, which no source needs to know",
        &[
            "REWRITE",
            "LASTSAVE",
            "SETINFO",
            "replybufsize",
            "scripting",
            "number_of_cached_scripts",
        ],
    ),
    ("made when something runs", &["target/release/heatsink", "target/test-env", "fuzz/artifacts"]),
    ("examples and headings", &["products/2", "REQ/S", "timeout_ms"]),
];

static TREE: LazyLock<Tree> =
    LazyLock::new(|| Tree::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")));

#[test]
fn what_documents_name_exists() {
    let tree = &*TREE;
    let mut wrong = String::new();
    let mut looked_at = 0;
    for document in tree.documents() {
        let text = fs::read_to_string(tree.root.join(&document)).expect("a document is text");
        for (line, name, why) in tree.judge(&document, &text, &mut looked_at) {
            writeln!(wrong, "{document}:{line}: `{name}` {why}").expect("a string takes all");
        }
    }
    assert!(wrong.is_empty(), "documents name what does not exist:\n{wrong}");
    // A test that reads nothing finds nothing.
    assert!(looked_at > 1000, "only {looked_at} names were looked at");
}

#[test]
fn every_crate_has_its_line() {
    let tree = &*TREE;
    let text = fs::read_to_string(tree.root.join("CONTRIBUTING.md")).expect("a document is text");
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("| `")).collect();
    let is_member = |dir: &&String| !dir.starts_with("fuzz");
    for (name, dir) in tree.packages.iter().filter(|(_, dir)| is_member(dir)) {
        let start = format!("| `{name}` ");
        assert!(lines.iter().any(|line| line.starts_with(&start)), "{name} in {dir} has no line");
    }
}

#[test]
fn an_exception_is_named_somewhere() {
    let tree = &*TREE;
    let read = |document| fs::read_to_string(tree.root.join(document)).expect("a document is text");
    let texts: Vec<String> = tree.documents().into_iter().map(read).collect();
    let names = FOREIGN.iter().flat_map(|(_, names)| *names);
    let unused: Vec<_> = names
        .filter(|name| !texts.iter().any(|text| text.contains(&format!("`{name}`"))))
        .collect();
    assert!(unused.is_empty(), "no document names {unused:?}");
}

#[test]
fn a_name_that_does_not_exist_is_found() {
    let tree = &*TREE;
    let found = |text: &str| -> Vec<String> {
        tree.judge("README.md", text, &mut 0).into_iter().map(|(_, name, _)| name).collect()
    };
    assert_eq!(found("`src/decide.rs`, `Decision`, `LocalCache::hit`, `heatsink-cache`"), [""; 0]);
    assert_eq!(found("`src/undecided.rs`"), ["src/undecided.rs"]);
    assert_eq!(
        found("`heatsink-proxy/src/{decide,yore}.rs`"),
        ["heatsink-proxy/src/{decide,yore}.rs"]
    );
    assert_eq!(found("a `LocalCacheOfYore`"), ["LocalCacheOfYore"]);
    assert_eq!(found("`LocalCache::of_yore`"), ["LocalCache::of_yore"]);
    assert_eq!(found("`heatsink-yore` is a crate"), ["heatsink-yore"]);
    assert_eq!(found("`READS_PER_TURN` 4, `POOL_IDLE` 30 s, `READS_PER_YORE`"), ["READS_PER_YORE"]);
    assert_eq!(found("`READS_PER_TURN` 5"), ["READS_PER_TURN"]);
    assert_eq!(found("[here](docs/adr), [there](docs/yore.md)"), ["docs/yore.md"]);
    assert_eq!(found("[x](CONTRIBUTING.md#the-crates), [y](#of-yore)"), ["#of-yore"]);
    let console = "```console\n$ cargo test -p heatsink-cli --test yore -- --nocapture\n```";
    assert_eq!(found(console), ["--test yore"]);
}

/// A line, what it names, and what is wrong with that.
type Mistake = (usize, String, String);

/// The repository, as far as documents may name it.
struct Tree {
    root: PathBuf,
    /// Paths from the root, with slashes.
    files: Vec<String>,
    dirs: HashSet<String>,
    /// Words of sources, and the sources that they are in.
    words: HashMap<String, HashSet<usize>>,
    /// Numbers and durations (in nanoseconds) that constants of a name stand for.
    constants: HashMap<String, Vec<Option<f64>>>,
    /// Where each package is.
    packages: HashMap<String, String>,
}

impl Tree {
    fn read(root: &Path) -> Self {
        let mut tree = Self {
            root: root.to_owned(),
            files: Vec::new(),
            dirs: HashSet::new(),
            words: HashMap::new(),
            constants: HashMap::new(),
            packages: HashMap::new(),
        };
        tree.walk("");
        tree.files.sort();
        for index in 0..tree.files.len() {
            tree.read_source(index);
        }
        assert!(tree.packages.len() > 20, "the workspace was not found at {}", root.display());
        tree
    }

    fn walk(&mut self, dir: &str) {
        let entries = fs::read_dir(self.root.join(dir)).expect("a directory of the tree");
        for entry in entries {
            let entry = entry.expect("an entry of the tree");
            let name = entry.file_name().into_string().expect("names are UTF-8");
            let path = if dir.is_empty() { name.clone() } else { format!("{dir}/{name}") };
            let kind = entry.file_type().expect("a kind");
            if kind.is_dir() && !matches!(&*name, ".git" | "target" | "node_modules") {
                self.walk(&path);
                self.dirs.insert(path);
            } else if kind.is_file() {
                self.files.push(path);
            }
        }
    }

    fn read_source(&mut self, index: usize) {
        let path = self.files[index].clone();
        if path.ends_with("tests/documents.rs") || path.ends_with(".md") {
            return;
        }
        let Ok(text) = fs::read_to_string(self.root.join(&path)) else { return };
        let is_rust = path.ends_with(".rs");
        for line in text.lines() {
            let line = line.trim_start();
            if is_rust && line.starts_with("//") {
                continue;
            }
            for word in words(line) {
                if !self.words.contains_key(word) {
                    self.words.insert(word.to_owned(), HashSet::new());
                }
                self.words.get_mut(word).expect("it is there").insert(index);
            }
            if is_rust && let Some((name, value)) = constant(line) {
                self.constants.entry(name.to_owned()).or_default().push(value);
            }
        }
        // The first name is the package's; others are of its targets.
        if let Some(dir) = path.strip_suffix("/Cargo.toml")
            && let Some(name) = text.lines().find_map(|line| line.strip_prefix("name = \""))
        {
            self.packages.insert(name.trim_end_matches('"').to_owned(), dir.to_owned());
        }
        // Modules and tests are named by their files.
        let stem =
            path.rsplit('/').next().unwrap_or_default().split('.').next().unwrap_or_default();
        self.words.entry(stem.to_owned()).or_default().insert(index);
    }

    fn documents(&self) -> Vec<String> {
        let is_document = |path: &&String| {
            path.ends_with(".md")
                && (path.starts_with("docs/") || *path == "deploy/README.md" || !path.contains('/'))
                && *path != "CHANGELOG.md"
        };
        self.files.iter().filter(is_document).cloned().collect()
    }

    fn judge(&self, document: &str, text: &str, looked_at: &mut usize) -> Vec<Mistake> {
        let mut wrong = Vec::new();
        let mut is_fenced = false;
        for (index, line) in text.lines().enumerate() {
            let mut blame = |name: &str, why: &str| {
                wrong.push((index + 1, name.to_owned(), why.to_owned()));
            };
            if line.trim_start().starts_with("```") {
                is_fenced = !is_fenced;
            } else if is_fenced {
                if let Err((name, why)) = self.judge_command(line) {
                    blame(&name, why);
                }
            } else {
                for target in links(line) {
                    *looked_at += 1;
                    if let Err(why) = self.judge_link(document, text, target) {
                        blame(target, why);
                    }
                }
                for (span, behind) in spans(line) {
                    *looked_at += 1;
                    if FOREIGN.iter().any(|(_, names)| names.contains(&span)) {
                        continue;
                    }
                    if let Err((name, why)) = self.judge_command(span) {
                        blame(&name, why);
                    } else if let Err(why) = self.judge_name(span, behind) {
                        blame(span, why);
                    }
                }
            }
        }
        wrong
    }

    fn judge_link(&self, document: &str, text: &str, target: &str) -> Result<(), &'static str> {
        if target.contains("://") {
            return Ok(());
        }
        let (path, heading) = target.split_once('#').unwrap_or((target, ""));
        let at = Path::new(document).parent().unwrap_or(Path::new("")).join(path);
        if path.is_empty() {
            return has_heading(text, heading);
        }
        let at = self.root.join(at);
        match fs::read_to_string(&at) {
            Ok(text) if !heading.is_empty() => has_heading(&text, heading),
            Ok(_) => Ok(()),
            Err(_) if at.exists() => Ok(()),
            Err(_) => Err("is no file"),
        }
    }

    /// What `cargo` is asked for.
    fn judge_command(&self, line: &str) -> Result<(), (String, &'static str)> {
        let Some((_, command)) = line.split_once("cargo ") else { return Ok(()) };
        let mut dir = None;
        let mut words = command.split_whitespace().take_while(|word| *word != "--");
        while let Some(word) = words.next() {
            let folder = match word {
                "-p" | "--package" => {
                    let name = words.next().unwrap_or_default();
                    dir = Some(self.packages.get(name));
                    if dir == Some(None) {
                        return Err((format!("-p {name}"), "is no package"));
                    }
                    continue;
                }
                "--test" => "tests",
                "--example" => "examples",
                "--bench" => "benches",
                _ => continue,
            };
            let name = words.next().unwrap_or_default();
            if let Some(Some(dir)) = dir {
                let file = format!("{dir}/{folder}/{name}.rs");
                let main = format!("{dir}/{folder}/{name}/main.rs");
                if !self.files.contains(&file) && !self.files.contains(&main) {
                    return Err((format!("{word} {name}"), "is no target of the package"));
                }
            }
        }
        Ok(())
    }

    fn judge_name(&self, span: &str, behind: &str) -> Result<(), &'static str> {
        if let Some((front, rest)) = span.split_once('{')
            && let Some((names, end)) = rest.split_once('}')
            && front.contains('/')
        {
            return names.split(',').try_for_each(|name| {
                self.judge_name(&format!("{front}{}{end}", name.trim()), behind)
            });
        }
        // Without the arguments of a call, the labels of a metric.
        let name = span.split(['(', '{']).next().unwrap_or_default();
        if name.is_empty() || name.contains(char::is_whitespace) {
            return Ok(());
        }
        if is_path(name) {
            return if self.has_path(name) { Ok(()) } else { Err("is no path in the tree") };
        }
        if name.starts_with("heatsink-") && name.chars().all(|c| c.is_ascii_lowercase() || c == '-')
        {
            let is_known = self.packages.contains_key(name);
            return if is_known { Ok(()) } else { Err("is no package") };
        }
        let is_identifier = |part: &&str| {
            part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        let parts: Vec<&str> = name.split("::").flat_map(|part| part.split('.')).collect();
        if !parts.iter().all(is_identifier) {
            return Ok(());
        }
        if let [name] = *parts
            && name.len() > 2
            && name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
            && let Some(number) = quantity(behind)
        {
            return match self.constants.get(name) {
                None => Err("is no constant"),
                Some(values) if values.iter().any(|v| v.is_none_or(|v| is_about(v, number))) => {
                    Ok(())
                }
                Some(_) => Err("has another value"),
            };
        }
        let mut sources: Option<HashSet<usize>> = None;
        for part in parts {
            let Some(found) = self.words.get(part) else { return Err("is in no source") };
            sources = Some(match sources {
                Some(sources) => sources.intersection(found).copied().collect(),
                None => found.clone(),
            });
        }
        match sources {
            Some(sources) if sources.is_empty() => Err("is in no source: its parts are, apart"),
            _ => Ok(()),
        }
    }

    fn has_path(&self, name: &str) -> bool {
        let name = name.split('*').next().unwrap_or_default().trim_end_matches('/');
        let name = name.trim_start_matches("../").trim_start_matches("./");
        let ends = |path: &String| path == name || path.ends_with(&format!("/{name}"));
        name.is_empty() || self.files.iter().any(ends) || self.dirs.iter().any(ends)
    }
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// Whether a name is meant as a path in the tree.
fn is_path(name: &str) -> bool {
    let ends =
        [".rs", ".md", ".toml", ".txt", ".yml", ".yaml", ".json", ".service", ".html", ".js"];
    let is_plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "_-./*".contains(c));
    let has_end = ends.iter().any(|end| name.ends_with(end) && name.len() > end.len());
    is_plain && !name.starts_with(['/', '*']) && (name.contains('/') || has_end)
}

/// Where the links of a line lead.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split(')').next())
}

/// What stands in backticks, and what is behind each.
fn spans(line: &str) -> Vec<(&str, &str)> {
    let mut spans = Vec::new();
    let mut rest = line;
    while let Some((_, opened)) = rest.split_once('`') {
        let Some((span, behind)) = opened.split_once('`') else { break };
        spans.push((span, behind));
        rest = behind;
    }
    spans
}

fn has_heading(text: &str, heading: &str) -> Result<(), &'static str> {
    let slug = |line: &str| -> String {
        let title = line.trim_start_matches('#').trim();
        let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
    };
    let is_there =
        text.lines().filter(|line| line.starts_with('#')).any(|line| slug(line) == heading);
    if is_there { Ok(()) } else { Err("is no heading there") }
}

/// The name and value of a constant that is defined on this line; no value if it is not a number.
fn constant(line: &str) -> Option<(&str, Option<f64>)> {
    let rest = line.strip_prefix("pub ").unwrap_or(line);
    let rest =
        rest.strip_prefix("pub(crate) ").or(rest.strip_prefix("pub(super) ")).unwrap_or(rest);
    let (name, rest) = rest.strip_prefix("const ")?.split_once(':')?;
    let value = rest.split_once("= ").and_then(|(_, value)| evaluate(value.split(';').next()?));
    Some((name, value))
}

/// A number, or nanoseconds.
fn evaluate(expression: &str) -> Option<f64> {
    for (call, nanos) in [("from_secs", 1e9), ("from_millis", 1e6), ("from_micros", 1e3)] {
        if let Some(inner) =
            expression.strip_prefix("Duration::").and_then(|e| e.strip_prefix(call))
        {
            return Some(evaluate(inner.strip_prefix('(')?.strip_suffix(')')?)? * nanos);
        }
    }
    if let Some((left, right)) = expression.split_once("<<") {
        return Some(evaluate(left.trim())? * evaluate(right.trim())?.exp2());
    }
    if let Some((left, right)) = expression.split_once('*') {
        return Some(evaluate(left.trim())? * evaluate(right.trim())?);
    }
    expression.replace('_', "").parse().ok()
}

/// The quantity that a text begins with, behind one space: `32`, `65 536`, `64 KiB`, `300 µs`.
fn quantity(text: &str) -> Option<f64> {
    let mut words = text.strip_prefix(' ')?.split(' ').peekable();
    let clean = |word: &str| word.trim_end_matches([',', '.', ';', ':', ')']).to_owned();
    let first = words.next()?;
    let mut digits = clean(first);
    let mut is_open = digits == first;
    while is_open
        && let Some(next) = words.next_if(|next| {
            let next = clean(next);
            next.len() == 3 && next.chars().all(|c| c.is_ascii_digit())
        })
    {
        is_open = clean(next) == next;
        digits += &clean(next);
    }
    let number: f64 = digits.parse().ok()?;
    let unit = match words.next().filter(|_| is_open).map(clean).as_deref() {
        Some("KiB") => 1024.0,
        Some("MiB") => 1024.0 * 1024.0,
        Some("µs") => 1e3,
        Some("ms") => 1e6,
        Some("s") => 1e9,
        Some("minute" | "minutes") => 60e9,
        _ => 1.0,
    };
    Some(number * unit)
}

fn is_about(left: f64, right: f64) -> bool {
    (left - right).abs() < 0.5
}
