// Generated code passes the strictest of rustc's lints.
#![deny(warnings, missing_docs, unreachable_pub, unused, rust_2018_idioms, non_camel_case_types, non_snake_case)]
#![forbid(unsafe_code)]

//! A crate of tools.

use toolwright_tool::prelude::*;

/// Units of temperature.
#[args]
pub enum Units {
    /// Celsius.
    Celsius,
    /// Fahrenheit.
    Fahrenheit,
}

/// A place.
#[args]
pub struct Place {
    /// The city.
    #[arg(default = "Oslo", length(min = 1))]
    pub city: String,
    /// The country.
    pub country: Option<String>,
}

/// The weather.
#[tool(read_only)]
pub async fn weather(
    /// Where.
    place: Place,
    /// In which units.
    #[arg(default = Units::Celsius)]
    units: Units,
    mut days: Option<u8>,
    _: Ctx,
) -> Result<String, ToolError> {
    let days = days.take().unwrap_or(1);
    Ok(format!("{place:?} {units:?} {days}"))
}

#[tool(needs_approval)]
fn private(r#type: String) -> usize {
    r#type.len()
}

fn main() {
    let weather = tools![weather, private];
    assert_eq!(weather.len(), 2);
}
