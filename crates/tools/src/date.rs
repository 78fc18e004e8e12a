//! `current_date` and `day_name` (sdk-tools 9.4).

use jiff::civil::Weekday;
use toolwright_tool::{ToolError, args, tool};

use crate::clock::Today;
use crate::written;

/// Today's date, in UTC.
#[tool(read_only)]
pub async fn current_date(Today(today): Today) -> String {
    today.to_string()
}

/// A day of the week.
#[args]
#[derive(PartialEq, Eq)]
pub struct Day {
    /// The date, such as 1999-12-31.
    pub date: String,
    /// The day's name, such as Friday.
    pub day: String,
}

/// The day of the week of a date, or of today.
#[tool(read_only)]
pub async fn day_name(
    /// Such as "1999-12-31", "31 December 1999" or "tomorrow"; today if left out.
    date: Option<String>,
    Today(today): Today,
) -> Result<Day, ToolError> {
    let date = match &date {
        Some(text) => written::date(text, today).map_err(|problem| ToolError::invalid("date", problem.to_string()))?,
        None => today,
    };
    Ok(Day { date: date.to_string(), day: english(date.weekday()).to_owned() })
}

fn english(day: Weekday) -> &'static str {
    match day {
        Weekday::Monday => "Monday",
        Weekday::Tuesday => "Tuesday",
        Weekday::Wednesday => "Wednesday",
        Weekday::Thursday => "Thursday",
        Weekday::Friday => "Friday",
        Weekday::Saturday => "Saturday",
        Weekday::Sunday => "Sunday",
    }
}
