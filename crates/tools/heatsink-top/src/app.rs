//! What is on the screen, and what key presses do to it. No terminal here: tests press keys and
//! draw frames.
//!
//! Called by: `terminal`.
//! Invariant: an order that changes something leaves here only by way of a question that was
//! answered with yes.

mod dialog;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::widgets::TableState;

use crate::model::{Details, Key, Snapshot};
use crate::source::{Message, Order};
pub(crate) use dialog::{Choice, Dialog, MITIGATIONS};

/// What to do after a key press.
#[derive(Debug, PartialEq)]
pub(crate) enum Step {
    /// Draw again.
    Draw,
    /// Have this done, and draw again.
    Order(Order),
    /// End.
    Quit,
}

/// A column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    Key,
    Requests,
    Trend,
    Reads,
    Hits,
    Mitigation,
    Status,
    Since,
}

impl Column {
    pub(crate) const ALL: [Self; 8] = [
        Self::Key,
        Self::Requests,
        Self::Trend,
        Self::Reads,
        Self::Hits,
        Self::Mitigation,
        Self::Status,
        Self::Since,
    ];

    /// Numbers are looked at from the top, names from the beginning.
    fn is_text(self) -> bool {
        matches!(self, Self::Key | Self::Mitigation | Self::Status)
    }

    fn compare(self, a: &Key, b: &Key) -> std::cmp::Ordering {
        // Growth over the minute.
        let trend = |key: &Key| {
            let first = key.rates.first().copied().unwrap_or_default();
            key.rates.last().copied().unwrap_or_default() - first
        };
        let share = |share: Option<f64>| share.unwrap_or(-1.0);
        match self {
            Self::Key => a.name.cmp(&b.name),
            Self::Requests => a.hot.frequency.total_cmp(&b.hot.frequency),
            Self::Trend => trend(a).total_cmp(&trend(b)),
            Self::Reads => share(a.read_share()).total_cmp(&share(b.read_share())),
            Self::Hits => share(a.hit_ratio).total_cmp(&share(b.hit_ratio)),
            Self::Mitigation => a.mitigation.cmp(&b.mitigation),
            Self::Status => a.hot.status.cmp(&b.hot.status),
            Self::Since => a.since.cmp(&b.since),
        }
    }
}

/// How the fleet was when it was last asked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Connection {
    Live,
    /// No answer, and why.
    Lost(String),
}

/// Everything that is drawn.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) admin: String,
    pub(crate) colours: bool,
    pub(crate) connection: Connection,
    pub(crate) snapshot: Snapshot,
    pub(crate) sort: Column,
    pub(crate) descending: bool,
    pub(crate) filter: String,
    /// The row that is chosen, by the hash of its key: rows move.
    chosen: Option<String>,
    pub(crate) table: TableState,
    /// The key that is looked at, if not the list.
    pub(crate) opened: Option<Key>,
    pub(crate) details: Option<Details>,
    pub(crate) dialog: Option<Dialog>,
    /// What came of the last order: whether it went well, and the words.
    pub(crate) news: Option<(bool, String)>,
}

impl App {
    pub(crate) fn new(admin: &str, colours: bool, snapshot: Snapshot) -> Self {
        Self {
            admin: admin.strip_prefix("http://").unwrap_or(admin).trim_end_matches('/').to_owned(),
            colours,
            connection: Connection::Live,
            snapshot,
            sort: Column::Requests,
            descending: true,
            filter: String::new(),
            chosen: None,
            table: TableState::default(),
            opened: None,
            details: None,
            dialog: None,
            news: None,
        }
    }

    pub(crate) fn hear(&mut self, message: Message) {
        match message {
            Message::Fleet(snapshot) => {
                self.connection = Connection::Live;
                self.snapshot = *snapshot;
                if let Some(opened) = &mut self.opened {
                    let now = self
                        .snapshot
                        .keys
                        .iter()
                        .find(|key| key.hot.key_hash == opened.hot.key_hash);
                    match now {
                        Some(now) => *opened = now.clone(),
                        None => "not registered any more".clone_into(&mut opened.hot.status),
                    }
                }
            }
            Message::Details(details) => {
                let of = |details: &Details| {
                    self.opened.as_ref().is_some_and(|key| key.hot.key_hash == details.hash)
                };
                self.details = details.map(|details| *details).filter(of);
            }
            Message::Lost(why) => self.connection = Connection::Lost(why),
            Message::Done(words) => self.news = Some((true, words)),
            Message::Failed(words) => self.news = Some((false, words)),
        }
    }

    /// The rows in their order.
    pub(crate) fn rows(&self) -> Vec<&Key> {
        let mut rows: Vec<&Key> =
            self.snapshot.keys.iter().filter(|key| key.name.contains(&self.filter)).collect();
        rows.sort_by(|a, b| {
            let order = self.sort.compare(a, b);
            let order = if self.descending { order.reverse() } else { order };
            order.then_with(|| a.name.cmp(&b.name))
        });
        rows
    }

    /// The place of the chosen row; the first if the one that was chosen is gone.
    pub(crate) fn place(&self, rows: &[&Key]) -> Option<usize> {
        let place = rows.iter().position(|key| Some(&key.hot.key_hash) == self.chosen.as_ref());
        place.or_else(|| (!rows.is_empty()).then_some(0))
    }

    fn chosen_key(&self) -> Option<Key> {
        if let Some(opened) = &self.opened {
            return Some(opened.clone());
        }
        let rows = self.rows();
        self.place(&rows).map(|place| rows[place].clone())
    }

    pub(crate) fn press(&mut self, key: KeyEvent) -> Step {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return Step::Quit;
        }
        if let Some(dialog) = self.dialog.take() {
            return self.answer(dialog, key.code);
        }
        self.news = None;
        match key.code {
            KeyCode::Char('q') => return Step::Quit,
            KeyCode::Esc | KeyCode::Backspace if self.opened.is_some() => return self.close(),
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Char('p') => self.dialog = self.chosen_key().map(Dialog::promote),
            KeyCode::Char('d') => self.dialog = self.chosen_key().map(Dialog::demote),
            KeyCode::Char('n') => self.dialog = Some(Dialog::NewKey(String::new())),
            KeyCode::Char('?' | 'h') => self.dialog = Some(Dialog::Help),
            _ if self.opened.is_some() => {}
            KeyCode::Char('/') => self.dialog = Some(Dialog::Filter(self.filter.clone())),
            KeyCode::Enter => return self.open(),
            KeyCode::Up | KeyCode::Char('k') => self.choose(-1),
            KeyCode::Down | KeyCode::Char('j') => self.choose(1),
            KeyCode::PageUp => self.choose(-10),
            KeyCode::PageDown => self.choose(10),
            KeyCode::Home => self.choose(isize::MIN),
            KeyCode::End => self.choose(isize::MAX),
            KeyCode::Left => self.sort_beside(Column::ALL.len() - 1),
            KeyCode::Right => self.sort_beside(1),
            KeyCode::Char('r') => self.descending = !self.descending,
            KeyCode::Char(digit @ '1'..='8') => {
                self.sort_by(Column::ALL[digit as usize - '1' as usize]);
            }
            _ => {}
        }
        Step::Draw
    }

    fn choose(&mut self, by: isize) {
        let rows = self.rows();
        let Some(place) = self.place(&rows) else { return };
        let place = place.saturating_add_signed(by).min(rows.len() - 1);
        self.chosen = Some(rows[place].hot.key_hash.clone());
    }

    fn sort_beside(&mut self, steps: usize) {
        let at = Column::ALL.iter().position(|&column| column == self.sort).unwrap_or(0);
        self.sort_by(Column::ALL[(at + steps) % Column::ALL.len()]);
    }

    /// Sorts by a column, or the other way round if it is sorted by it already.
    fn sort_by(&mut self, column: Column) {
        self.descending = if self.sort == column { !self.descending } else { !column.is_text() };
        self.sort = column;
    }

    fn open(&mut self) -> Step {
        let Some(key) = self.chosen_key() else { return Step::Draw };
        let address = key.address.clone();
        self.chosen = Some(key.hot.key_hash.clone());
        self.details = None;
        self.opened = Some(key);
        Step::Order(Order::Watch(Some(address)))
    }

    fn close(&mut self) -> Step {
        self.opened = None;
        self.details = None;
        Step::Order(Order::Watch(None))
    }
}

#[cfg(test)]
mod tests;
