//! Tables in memory and the small part of SQL that tasks need of `sqlite3`.
//!
//! `CREATE TABLE`, `INSERT`, `UPDATE`, `DELETE`, `SELECT` of columns, `*` or `count(*)` of one table, with
//! `WHERE` (comparisons and `LIKE`, joined by `AND` and `OR`), `ORDER BY` and `LIMIT`.
//!
//! Deviations from SQLite: every value is text, compared as a number where both sides are one;
//! column types and constraints are read over; there are no joins, expressions, indexes and nulls.

use std::{cmp::Ordering, collections::BTreeMap};

use super::sql_words::{Word, Words};

/// Longest statement, bytes.
const MAX_STATEMENT: usize = 1 << 16;
/// Most rows of a table.
const MAX_ROWS: usize = 100_000;

pub(crate) type Row = Vec<String>;

/// Columns and rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<Row>,
}

impl Table {
    pub(crate) fn of(columns: &[&str]) -> Self {
        Self {
            columns: columns.iter().map(|name| (*name).to_owned()).collect(),
            rows: Vec::new(),
        }
    }

    fn column(&self, name: &str) -> Result<usize, String> {
        let same = |known: &String| known.eq_ignore_ascii_case(name);
        let found = self.columns.iter().position(same);
        found.ok_or_else(|| format!("no such column: {name}"))
    }

    fn add(&mut self, row: Row) -> Result<(), String> {
        if self.rows.len() >= MAX_ROWS {
            return Err("database or disk is full".into());
        }
        self.rows.push(row);
        Ok(())
    }
}

/// The tables of a file by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Database {
    pub(crate) tables: BTreeMap<String, Table>,
}

impl Database {
    /// Runs statements; gives the rows that they select, or what is wrong with them.
    pub(crate) fn run(&mut self, text: &str) -> Result<Vec<Row>, String> {
        if text.len() > MAX_STATEMENT {
            return Err("statement too long".into());
        }
        let mut words = Words::of(text)?;
        let mut rows = Vec::new();
        while !words.is_empty() {
            if !words.takes(";") {
                rows.extend(self.statement(&mut words)?);
            }
        }
        Ok(rows)
    }

    fn statement(&mut self, words: &mut Words) -> Result<Vec<Row>, String> {
        if words.takes("select") {
            return self.select(words);
        }
        if words.takes("create") {
            self.create(words)?;
        } else if words.takes("insert") {
            self.insert(words)?;
        } else if words.takes("update") {
            self.update(words)?;
        } else if words.takes("delete") {
            words.expect("from")?;
            let table = self.table(&words.name()?)?;
            let doomed = Filter::read(words, table)?;
            table.rows.retain(|row| !doomed.holds(row));
        } else {
            return Err(words.unexpected());
        }
        words.end()?;
        Ok(Vec::new())
    }

    fn table(&mut self, name: &str) -> Result<&mut Table, String> {
        let table = self.tables.get_mut(&name.to_lowercase());
        table.ok_or_else(|| format!("no such table: {name}"))
    }

    fn create(&mut self, words: &mut Words) -> Result<(), String> {
        words.expect("table")?;
        let may_exist = words.takes("if");
        if may_exist {
            words.expect("not")?;
            words.expect("exists")?;
        }
        let name = words.name()?;
        words.expect("(")?;
        let mut columns = Vec::new();
        loop {
            columns.push(words.name()?);
            let mut depth = 0;
            // Types and constraints, which may hold parentheses.
            while depth > 0 || !(words.sees(",") || words.sees(")")) {
                match words.next()? {
                    Word::Sign("(") => depth += 1,
                    Word::Sign(")") => depth -= 1,
                    _ => {}
                }
            }
            if words.next()? == Word::Sign(")") {
                break;
            }
        }
        let known = self.tables.contains_key(&name.to_lowercase());
        match (known, may_exist) {
            (true, false) => return Err(format!("table {name} already exists")),
            (true, true) => {}
            (false, _) => {
                let rows = Vec::new();
                let table = Table { columns, rows };
                self.tables.insert(name.to_lowercase(), table);
            }
        }
        Ok(())
    }

    fn insert(&mut self, words: &mut Words) -> Result<(), String> {
        words.expect("into")?;
        let table = self.table(&words.name()?)?;
        let mut places: Vec<usize> = (0..table.columns.len()).collect();
        if words.takes("(") {
            places.clear();
            loop {
                places.push(table.column(&words.name()?)?);
                if !words.takes(",") {
                    break;
                }
            }
            words.expect(")")?;
        }
        words.expect("values")?;
        loop {
            words.expect("(")?;
            let mut row = vec![String::new(); table.columns.len()];
            for (number, place) in places.iter().enumerate() {
                if number > 0 {
                    words.expect(",")?;
                }
                row[*place] = words.value()?;
            }
            words.expect(")")?;
            table.add(row)?;
            if !words.takes(",") {
                return Ok(());
            }
        }
    }

    fn update(&mut self, words: &mut Words) -> Result<(), String> {
        let table = self.table(&words.name()?)?;
        words.expect("set")?;
        let mut changes = Vec::new();
        loop {
            let column = table.column(&words.name()?)?;
            words.expect("=")?;
            changes.push((column, words.value()?));
            if !words.takes(",") {
                break;
            }
        }
        let chosen = Filter::read(words, table)?;
        for row in table.rows.iter_mut().filter(|row| chosen.holds(row)) {
            for (column, value) in &changes {
                row[*column].clone_from(value);
            }
        }
        Ok(())
    }

    fn select(&mut self, words: &mut Words) -> Result<Vec<Row>, String> {
        let mut wanted = Vec::new();
        loop {
            wanted.push(words.next()?);
            if wanted.last().is_some_and(|word| word.is("count")) {
                words.expect("(")?;
                words.expect("*")?;
                words.expect(")")?;
            }
            if !words.takes(",") {
                break;
            }
        }
        words.expect("from")?;
        let table = &*self.table(&words.name()?)?;
        let chosen = Filter::read(words, table)?;
        let mut rows: Vec<&Row> = table.rows.iter().filter(|row| chosen.holds(row)).collect();
        if words.takes("order") {
            words.expect("by")?;
            let column = table.column(&words.name()?)?;
            rows.sort_by(|a, b| compare(&a[column], &b[column]));
            if words.takes("desc") {
                rows.reverse();
            } else {
                words.takes("asc");
            }
        }
        if words.takes("limit") {
            let most = words.value()?.parse().map_err(|_| "datatype mismatch")?;
            rows.truncate(most);
        }
        words.end()?;
        if wanted.first().is_some_and(|word| word.is("count")) {
            return Ok(vec![vec![rows.len().to_string()]]);
        }
        let mut columns = Vec::new();
        for word in &wanted {
            match word {
                Word::Sign("*") => columns.extend(0..table.columns.len()),
                word => columns.push(table.column(word.text())?),
            }
        }
        let pick = |row: &Row| columns.iter().map(|at| row[*at].clone()).collect();
        Ok(rows.into_iter().map(pick).collect())
    }
}

/// A comparison of a column.
#[derive(Debug)]
struct Test {
    column: usize,
    sign: String,
    value: String,
}

/// Rows for which all of some alternative holds.
#[derive(Debug)]
struct Filter(Vec<Vec<Test>>);

impl Filter {
    fn read(words: &mut Words, table: &Table) -> Result<Self, String> {
        let mut any = vec![Vec::new()];
        if !words.takes("where") {
            return Ok(Self(any));
        }
        loop {
            let column = table.column(&words.name()?)?;
            let sign = words.next()?.text().to_lowercase();
            if !SIGNS.contains(&sign.as_str()) {
                return Err(format!("near \"{sign}\": syntax error"));
            }
            let value = words.value()?;
            let test = Test {
                column,
                sign,
                value,
            };
            if let Some(all) = any.last_mut() {
                all.push(test);
            }
            if words.takes("or") {
                any.push(Vec::new());
            } else if !words.takes("and") {
                return Ok(Self(any));
            }
        }
    }

    fn holds(&self, row: &Row) -> bool {
        let one = |test: &Test| test.holds(&row[test.column]);
        self.0.iter().any(|all| all.iter().all(one))
    }
}

/// What may stand between a column and a value.
const SIGNS: [&str; 9] = ["=", "==", "!=", "<>", "<", "<=", ">", ">=", "like"];

impl Test {
    fn holds(&self, found: &str) -> bool {
        let order = compare(found, &self.value);
        match self.sign.as_str() {
            "=" | "==" => order.is_eq(),
            "!=" | "<>" => order.is_ne(),
            "<" => order.is_lt(),
            "<=" => order.is_le(),
            ">" => order.is_gt(),
            ">=" => order.is_ge(),
            _ => like(&found.to_lowercase(), &self.value.to_lowercase()),
        }
    }
}

fn compare(a: &str, b: &str) -> Ordering {
    let number = |text: &str| text.parse::<f64>().ok().filter(|value| value.is_finite());
    match (number(a), number(b)) {
        (Some(a), Some(b)) => a.total_cmp(&b),
        _ => a.cmp(b),
    }
}

/// Whether `text` fits a pattern of `%` (anything) and `_` (one character).
fn like(text: &str, pattern: &str) -> bool {
    let text: Vec<char> = text.chars().collect();
    // Which beginnings of the text the pattern so far fits.
    let mut fits = vec![false; text.len() + 1];
    fits[0] = true;
    for wanted in pattern.chars() {
        let mut next = vec![false; text.len() + 1];
        match wanted {
            '%' => {
                let first = fits.iter().position(|fit| *fit).unwrap_or(fits.len());
                next[first..].fill(true);
            }
            wanted => {
                for at in (0..text.len()).filter(|at| fits[*at]) {
                    next[at + 1] = wanted == '_' || wanted == text[at];
                }
            }
        }
        fits = next;
    }
    fits.last() == Some(&true)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn database() -> Database {
        let mut database = Database::default();
        let made = database.run(
            "CREATE TABLE IF NOT EXISTS people (name TEXT NOT NULL, number VARCHAR(20), age INTEGER DEFAULT (1));
             INSERT INTO people VALUES ('Ann', '555 1', 30), ('Bob', '555 2', 4);
             insert into People (number, name) values ('7', 'O''Hara');",
        );
        made.unwrap();
        database
    }

    #[test]
    fn statements_do_what_they_say() {
        let mut d = database();
        let mut run = |text: &str| {
            let rows = d.run(text).unwrap();
            let rows: Vec<_> = rows.iter().map(|row| row.join("|")).collect();
            rows.join(",")
        };
        assert_eq!(run("SELECT name FROM people WHERE age > 5"), "Ann");
        assert_eq!(
            run("select * from people where name='O''Hara'"),
            "O'Hara|7|"
        );
        assert_eq!(run("SELECT count(*) FROM people"), "3");
        let ordered = "SELECT age, name FROM people WHERE age != '' ORDER BY age DESC LIMIT 2;";
        assert_eq!(run(ordered), "30|Ann,4|Bob");
        assert_eq!(
            run("SELECT name FROM people WHERE number LIKE '555_%' OR age = 9 "),
            "Ann,Bob"
        );
        assert_eq!(
            run("UPDATE people SET age = 5, number='x' WHERE name='Bob' AND age = 4.0"),
            ""
        );
        assert_eq!(run("SELECT number FROM people WHERE age=5"), "x");
        assert_eq!(
            run("DELETE FROM people WHERE name <> 'Ann'; SELECT name FROM people"),
            "Ann"
        );
    }

    #[test]
    fn mistakes_are_named() {
        for (text, named) in [
            ("SELECT x FROM nobody", "no such table: nobody"),
            ("SELECT age2 FROM people", "no such column: age2"),
            ("SELECT name FROM people WHERE age", "incomplete"),
            ("SELECT name FROM people WHERE age IN 3", "syntax error"),
            ("CREATE TABLE people (x)", "already exists"),
            ("DROP TABLE people", "near \"DROP\""),
            ("INSERT INTO people VALUES ('a'", "incomplete"),
            ("SELECT 'a", "unrecognized token"),
        ] {
            let said = database().run(text).unwrap_err();
            assert!(said.contains(named), "{text}: {said}");
        }
        assert!(database().run(&" ".repeat(MAX_STATEMENT + 1)).is_err());
    }

    proptest! {
        #[test]
        fn no_statement_makes_it_panic(words in proptest::collection::vec(
            "select|insert|into|people|values|update|set|delete|from|where|create|table|name|age|count|order|by|limit|like|'a'|5|[(),;=*<>!]|\\PC",
            0..14,
        )) {
            let _ = database().run(&words.join(" "));
        }

        #[test]
        fn like_is_what_a_search_says(text in "[ab]{0,8}", middle in "[ab]{0,3}") {
            prop_assert_eq!(like(&text, &format!("%{middle}%")), text.contains(&middle));
        }
    }
}
