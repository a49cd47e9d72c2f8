//! Questions, and what their answers do.

use heatsink_admin::control::Promotion;
use heatsink_control::entry::Mitigation;
use ratatui::crossterm::event::KeyCode;

use super::{App, Step};
use crate::model::{Key, visible};
use crate::source::Order;

/// What can be chosen.
pub(crate) const MITIGATIONS: &[Mitigation] = Mitigation::ALL;

/// Letters that can be typed into a question.
const TYPED_MAX: usize = 512;

/// Physical keys that one may be split over.
const FACTORS: std::ops::RangeInclusive<u32> = 2..=1024;

/// Longest life that can be given: ten years, as in the API.
const TTL_SECONDS_MAX: u64 = 315_360_000;

/// What is asked.
#[derive(Debug)]
pub(crate) enum Dialog {
    /// Which mitigation a key shall get.
    Promote(Choice),
    /// Whether to take a key out of the registry.
    Demote {
        key: Vec<u8>,
        name: String,
    },
    /// Which key to promote.
    NewKey(String),
    /// Which keys to show.
    Filter(String),
    Help,
}

/// What a key shall get.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    key: Vec<u8>,
    pub(crate) name: String,
    /// The place in [`MITIGATIONS`].
    pub(crate) chosen: usize,
    pub(crate) split_factor: u32,
    /// How long the entry lives; nothing is until it is removed, as in the API.
    pub(crate) ttl_seconds: Option<u64>,
    /// The choice is made, and only a yes is missing.
    pub(crate) is_sure: bool,
}

impl Choice {
    fn promotion(&self) -> Promotion {
        let mitigation = MITIGATIONS[self.chosen];
        let is_split = mitigation == Mitigation::Split;
        Promotion {
            mitigation,
            split_factor: is_split.then_some(self.split_factor),
            ttl_seconds: self.ttl_seconds,
        }
    }

    /// Digits are typed behind those that are there. A zero at the front is none, and what would
    /// be too long is not taken.
    fn type_digit(&mut self, digit: u32) {
        let seconds = self.ttl_seconds.unwrap_or(0) * 10 + u64::from(digit);
        if (1..=TTL_SECONDS_MAX).contains(&seconds) {
            self.ttl_seconds = Some(seconds);
        }
    }
}

impl Dialog {
    pub(super) fn promote(key: Key) -> Self {
        let current = key.hot.mitigation_type.as_str();
        let chosen = MITIGATIONS.iter().position(|one| one.name() == current).unwrap_or(0);
        Self::of(key.address, key.name, chosen)
    }

    pub(super) fn demote(key: Key) -> Self {
        Self::Demote { key: key.address, name: key.name }
    }

    fn of(key: Vec<u8>, name: String, chosen: usize) -> Self {
        let split_factor = *FACTORS.start();
        Self::Promote(Choice { key, name, chosen, split_factor, ttl_seconds: None, is_sure: false })
    }
}

impl App {
    /// A key was pressed while `dialog` was open. Whatever is not an answer leaves it open.
    pub(super) fn answer(&mut self, dialog: Dialog, key: KeyCode) -> Step {
        if key == KeyCode::Esc {
            return Step::Draw;
        }
        match dialog {
            Dialog::Help => {}
            Dialog::Filter(mut text) => {
                if key == KeyCode::Enter {
                    return Step::Draw;
                }
                type_into(&mut text, key);
                self.filter.clone_from(&text);
                self.dialog = Some(Dialog::Filter(text));
            }
            Dialog::NewKey(mut text) => {
                self.dialog = Some(if key == KeyCode::Enter && !text.is_empty() {
                    let name = visible(&text);
                    Dialog::of(text.into_bytes(), name, 0)
                } else {
                    type_into(&mut text, key);
                    Dialog::NewKey(text)
                });
            }
            Dialog::Demote { key: hot, name } => match key {
                KeyCode::Char('y') => return Step::Order(Order::Demote { key: hot, name }),
                KeyCode::Char('n') => {}
                _ => self.dialog = Some(Dialog::Demote { key: hot, name }),
            },
            Dialog::Promote(choice) => return self.answer_promote(key, choice),
        }
        Step::Draw
    }

    fn answer_promote(&mut self, pressed: KeyCode, mut choice: Choice) -> Step {
        let last = MITIGATIONS.len() - 1;
        let is_split = MITIGATIONS[choice.chosen] == Mitigation::Split;
        match pressed {
            KeyCode::Char('y') if choice.is_sure => {
                let promotion = choice.promotion();
                let Choice { key, name, .. } = choice;
                return Step::Order(Order::Promote { key, name, promotion });
            }
            KeyCode::Char('n') if choice.is_sure => return Step::Draw,
            _ if choice.is_sure => {}
            KeyCode::Enter => choice.is_sure = true,
            KeyCode::Up | KeyCode::Char('k') => choice.chosen = choice.chosen.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => choice.chosen = (choice.chosen + 1).min(last),
            KeyCode::Left if is_split => {
                choice.split_factor = (choice.split_factor / 2).max(*FACTORS.start());
            }
            KeyCode::Right if is_split => {
                choice.split_factor = (choice.split_factor * 2).min(*FACTORS.end());
            }
            KeyCode::Char(typed) => {
                if let Some(digit) = typed.to_digit(10) {
                    choice.type_digit(digit);
                }
            }
            KeyCode::Backspace => {
                choice.ttl_seconds = choice.ttl_seconds.map(|ttl| ttl / 10).filter(|&ttl| ttl > 0);
            }
            _ => {}
        }
        self.dialog = Some(Dialog::Promote(choice));
        Step::Draw
    }
}

fn type_into(text: &mut String, key: KeyCode) {
    match key {
        KeyCode::Char(letter) if text.len() < TYPED_MAX => text.push(letter),
        KeyCode::Backspace => {
            text.pop();
        }
        _ => {}
    }
}
