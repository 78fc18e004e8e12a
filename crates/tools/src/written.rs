//! Dates as people write them in English.

use jiff::civil::Date;

/// Why a text is no date.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Problem {
    /// It is not one that is understood.
    Unknown(String),
    /// It means one of two days.
    Ambiguous(String, Date, Date),
    /// It has no year, or one of two digits.
    Year(String),
    /// There is no such day.
    Impossible(String),
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unknown(text) => write!(f, "`{text}` is not a date; write it as 1999-12-31 or 31 December 1999"),
            Self::Ambiguous(text, left, right) => write!(f, "`{text}` may be {left} or {right}; write the one that is meant"),
            Self::Year(text) => write!(f, "`{text}` needs a year of four digits, as in 1999-12-31"),
            Self::Impossible(text) => write!(f, "there is no day `{text}` in the calendar"),
        }
    }
}

const MONTHS: [&str; 12] =
    ["january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november", "december"];

const DAYS: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];

/// The date that `text` says, where it can mean only one.
pub(crate) fn date(text: &str, today: Date) -> Result<Date, Problem> {
    let shown = || text.trim().chars().take(60).collect::<String>();
    let lower = text.trim().to_lowercase();
    let relative = match lower.as_str() {
        "today" | "now" => Some(Ok(today)),
        "tomorrow" => Some(today.tomorrow()),
        "yesterday" => Some(today.yesterday()),
        _ => None,
    };
    if let Some(day) = relative {
        return day.map_err(|_| Problem::Impossible(shown()));
    }
    let parts = parts(&lower).ok_or_else(|| Problem::Unknown(shown()))?;
    let civil = |year: Number, month: i8, day: Number| match (year.is_year(), i16::try_from(year.value), i8::try_from(day.value)) {
        (false, ..) => Err(Problem::Year(shown())),
        (true, Ok(year), Ok(day)) => Date::new(year, month, day).map_err(|_| Problem::Impossible(shown())),
        _ => Err(Problem::Impossible(shown())),
    };
    let month = |number: Number| i8::try_from(number.value).unwrap_or(i8::MAX);
    match *parts.as_slice() {
        [Part::Number(year), Part::Month(month), Part::Number(day)] if year.is_year() => civil(year, month, day),
        [Part::Number(day), Part::Month(month), Part::Number(year)] | [Part::Month(month), Part::Number(day), Part::Number(year)] => {
            civil(year, month, day)
        }
        [Part::Number(year), Part::Number(second), Part::Number(third)] if year.is_year() => civil(year, month(second), third),
        [Part::Number(first), Part::Number(second), Part::Number(year)] => {
            match (civil(year, month(second), first), civil(year, month(first), second)) {
                (Ok(left), Ok(right)) if left != right => Err(Problem::Ambiguous(shown(), left, right)),
                (Ok(day), _) | (_, Ok(day)) => Ok(day),
                (Err(problem), Err(_)) => Err(problem),
            }
        }
        [Part::Number(_), Part::Month(_)] | [Part::Month(_), Part::Number(_)] => Err(Problem::Year(shown())),
        _ => Err(Problem::Unknown(shown())),
    }
}

#[derive(Clone, Copy)]
enum Part {
    Number(Number),
    Month(i8),
}

#[derive(Clone, Copy)]
struct Number {
    value: u32,
    digits: usize,
}

impl Number {
    fn is_year(self) -> bool {
        self.digits == 4
    }
}

/// The numbers and months of `text`, without what says nothing more; `None` if anything else is in it.
fn parts(text: &str) -> Option<Vec<Part>> {
    // A time of day after an ISO date changes nothing about its day.
    let text = match text.split_once('t') {
        Some((date, time)) if date.ends_with(|c: char| c.is_ascii_digit()) && time.starts_with(|c: char| c.is_ascii_digit()) => date,
        _ => text,
    };
    let mut parts = Vec::new();
    for word in text.split([' ', '\t', ',', '-', '/', '.']).filter(|word| !word.is_empty()) {
        if word == "of" || word == "the" || named(word, &DAYS).is_some() {
            continue;
        }
        if let Some(index) = named(word, &MONTHS) {
            parts.push(Part::Month(i8::try_from(index).ok()? + 1));
            continue;
        }
        let letters = word.find(|c: char| !c.is_ascii_digit()).unwrap_or(word.len());
        let (digits, end) = word.split_at_checked(letters)?;
        if !matches!(end, "" | "st" | "nd" | "rd" | "th") || digits.len() > 4 {
            return None;
        }
        parts.push(Part::Number(Number { value: digits.parse().ok()?, digits: digits.len() }));
    }
    Some(parts)
}

/// The index of the name that `word` is, or begins with at least three letters.
fn named(word: &str, names: &[&str]) -> Option<usize> {
    (word.len() >= 3).then(|| names.iter().position(|name| name.starts_with(word)))?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> String {
        match date(text, jiff::civil::date(2024, 2, 28)) {
            Ok(day) => day.to_string(),
            Err(problem) => problem.to_string(),
        }
    }

    #[test]
    fn the_ways_to_write_one_day() {
        for text in [
            "1999-12-31",
            " 1999-12-31 ",
            "1999/12/31",
            "1999-12-31T23:59:59Z",
            "31 December 1999",
            "31 december 1999",
            "December 31, 1999",
            "31 Dec 1999",
            "Dec 31st, 1999",
            "Dec. 31, 1999",
            "the 31st of December, 1999",
            "Friday, 31 December 1999",
            "Fri 31-Dec-1999",
            "1999 December 31",
            "31.12.1999",
            "12/31/1999",
            "31/12/1999",
        ] {
            assert_eq!(read(text), "1999-12-31", "{text}");
        }
    }

    #[test]
    fn days_around_today() {
        assert_eq!((read("today"), read("Tomorrow"), read("yesterday")), ("2024-02-28".into(), "2024-02-29".into(), "2024-02-27".into()));
    }

    #[test]
    fn numbers_that_mean_one_day_are_read() {
        assert_eq!(read("05/05/2020"), "2020-05-05");
        assert_eq!(read("1.13.2020"), "2020-01-13");
        assert_eq!(read("13.1.2020"), "2020-01-13");
        assert_eq!(read("29 Feb 2024"), "2024-02-29");
        assert_eq!(read("1 sept 0987"), "0987-09-01");
    }

    #[test]
    fn numbers_that_mean_two_days_are_not() {
        assert_eq!(read("03/04/1999"), "`03/04/1999` may be 1999-04-03 or 1999-03-04; write the one that is meant");
        assert_eq!(read("3.4.1999"), "`3.4.1999` may be 1999-04-03 or 1999-03-04; write the one that is meant");
    }

    #[test]
    fn what_is_no_date_says_so() {
        for text in [
            "",
            "soon",
            "next friday",
            "31 Smarch 1999",
            "1999",
            "12:30",
            "99999-01-01",
            "1 2 3 4",
            "31 December 1999 AD",
            "三月",
            "-",
            "1x 2 2000",
        ] {
            assert!(read(text).ends_with("is not a date; write it as 1999-12-31 or 31 December 1999"), "{text}: {}", read(text));
        }
        for text in ["31 December", "December 31st", "31 Dec 99", "12/31/99", "1/2/3"] {
            assert!(read(text).ends_with("needs a year of four digits, as in 1999-12-31"), "{text}: {}", read(text));
        }
        for text in ["31 February 1999", "1999-13-01", "1999-02-29", "40/40/1999", "0 May 1999", "32 May 1999"] {
            assert_eq!(read(text), format!("there is no day `{text}` in the calendar"));
        }
    }
}
