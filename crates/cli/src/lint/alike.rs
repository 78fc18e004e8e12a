//! Tools that a model can hardly tell apart.

use std::collections::BTreeSet;

use toolwright::core::rank::words;

use super::Definition;

/// From this share of common words on, in percent, two tools are much alike. Pairs such as `read_file` and `write_file` with
/// descriptions of their own stay below it; copies with a word changed are above.
pub const ALIKE: usize = 70;

/// Two tools that are much alike, by position; the first comes earlier.
pub(super) struct Alike {
    pub(super) first: usize,
    pub(super) second: usize,
    pub(super) percent: usize,
}

/// Each tool that is much like an earlier one, with the one it is most like.
pub(super) fn pairs(tools: &[Definition]) -> Vec<Alike> {
    let bags: Vec<BTreeSet<String>> = tools
        .iter()
        .map(|tool| words(&tool.name).into_iter().chain(words(tool.description.as_deref().unwrap_or_default())).collect())
        .collect();
    let mut found = Vec::new();
    for (second, bag) in bags.iter().enumerate() {
        let best = bags
            .iter()
            .take(second)
            .enumerate()
            .map(|(first, other)| (percent(bag, other), first))
            .max_by_key(|(percent, first)| (*percent, std::cmp::Reverse(*first)));
        if let Some((percent, first)) = best
            && percent >= ALIKE
        {
            found.push(Alike { first, second, percent });
        }
    }
    found
}

/// The words of both, as a share of the words of either.
fn percent(left: &BTreeSet<String>, right: &BTreeSet<String>) -> usize {
    let common = left.intersection(right).count();
    let all = left.len() + right.len() - common;
    (common * 100).checked_div(all).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str, description: &str) -> Definition {
        Definition { name: name.into(), description: Some(description.into()), parameters: serde_json::json!({}) }
    }

    #[test]
    fn copies_are_found_and_neighbours_are_not() {
        let tools = [
            tool("get_weather", "Gets the current weather of a city."),
            tool("read_file", "Reads a file and gives its text."),
            tool("write_file", "Writes a text to a file."),
            tool("fetch_weather", "Get the current weather of a city."),
        ];
        let found = pairs(&tools);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].first, found[0].second), (0, 3));
        assert!(found[0].percent >= ALIKE, "{}", found[0].percent);
    }
}
