//! A table of text: columns as wide as what is in them, two spaces between.

use std::fmt;

/// To which side a column leans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// A table. Without a heading if all of its heads are empty.
#[derive(Debug)]
pub(crate) struct Table {
    aligns: Vec<Align>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(columns: &[(&str, Align)]) -> Self {
        let aligns = columns.iter().map(|(_, align)| *align).collect();
        let heads: Vec<String> = columns.iter().map(|(head, _)| (*head).to_owned()).collect();
        let rows = if heads.iter().all(String::is_empty) { Vec::new() } else { vec![heads] };
        Self { aligns, rows }
    }

    /// Adds a row with a cell for each column.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.aligns.len());
        self.rows.push(cells);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |column: usize| {
            let lengths = self.rows.iter().map(|row| row[column].chars().count());
            lengths.max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.aligns.len()).map(width).collect();
        for (number, row) in self.rows.iter().enumerate() {
            if number > 0 {
                f.write_str("\n")?;
            }
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                if column > 0 {
                    line.push_str("  ");
                }
                let space = " ".repeat(widths[column] - cell.chars().count());
                match self.aligns[column] {
                    Align::Left => line.extend([cell.as_str(), &space]),
                    Align::Right => line.extend([&space, cell.as_str()]),
                }
            }
            f.write_str(line.trim_end())?;
        }
        Ok(())
    }
}
