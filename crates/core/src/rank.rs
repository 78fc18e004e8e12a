//! Which tools a request is about: BM25 over names, descriptions and parameters.
//!
//! Plain words, no model: the same index and query give the same order on every machine (invariant 11).

use std::collections::BTreeMap;

/// How fast a word that is repeated in one document stops counting.
const K1: f32 = 1.2;
/// How much a long document is discounted.
const B: f32 = 0.75;
/// A name says most about a tool, so its words count this often.
const NAME_WEIGHT: u32 = 3;

/// Words of English requests and descriptions that tell no tool from another.
const STOP_WORDS: [&str; 46] = [
    "a", "about", "all", "an", "and", "any", "are", "as", "at", "be", "by", "can", "could", "do", "for", "from", "given", "has", "have",
    "how", "i", "if", "in", "is", "it", "its", "me", "my", "of", "on", "or", "please", "should", "that", "the", "their", "this", "to",
    "want", "was", "what", "which", "will", "with", "you", "your",
];

/// What is known of one tool.
#[derive(Clone, Debug, Default)]
pub struct Document<'d> {
    /// The tool's name.
    pub name: &'d str,
    /// Its description.
    pub description: &'d str,
    /// Names and descriptions of its parameters.
    pub parameters: Vec<&'d str>,
}

/// The words of all tools.
#[derive(Clone, Debug, Default)]
pub struct Index {
    /// For each word, the documents that have it, in order, and how often.
    postings: BTreeMap<String, Vec<(usize, u32)>>,
    lengths: Vec<u32>,
    mean_length: f32,
}

impl Index {
    /// Indexes tools; [`search`](Self::search) answers with their positions.
    pub fn new<'d>(documents: impl IntoIterator<Item = Document<'d>>) -> Self {
        let mut index = Self::default();
        for (position, document) in documents.into_iter().enumerate() {
            let mut counts: BTreeMap<String, u32> = BTreeMap::new();
            let mut count = |text: &str, weight: u32| {
                for word in words(text) {
                    *counts.entry(word).or_default() += weight;
                }
            };
            count(document.name, NAME_WEIGHT);
            count(document.description, 1);
            for parameter in &document.parameters {
                count(parameter, 1);
            }
            index.lengths.push(counts.values().sum());
            for (word, count) in counts {
                index.postings.entry(word).or_default().push((position, count));
            }
        }
        let total: u32 = index.lengths.iter().sum();
        index.mean_length = total as f32 / index.lengths.len().max(1) as f32;
        index
    }

    /// How many tools are indexed.
    pub fn len(&self) -> usize {
        self.lengths.len()
    }

    /// Whether no tool is indexed.
    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// The best matches and their scores, best first, those of equal score in the order indexed. A tool that shares no word with the
    /// query is no match.
    pub fn search(&self, query: &str, limit: usize) -> Vec<(usize, f32)> {
        let mut scores = vec![0.0_f32; self.lengths.len()];
        // A word that is repeated in a query is not meant more.
        let mut query_words = words(query);
        query_words.sort_unstable();
        query_words.dedup();
        for word in &query_words {
            let Some(postings) = self.postings.get(word) else { continue };
            let with = postings.len() as f32;
            let rarity = (1.0 + (self.lengths.len() as f32 - with + 0.5) / (with + 0.5)).ln();
            for (position, count) in postings {
                let length = self.lengths.get(*position).copied().unwrap_or_default() as f32 / self.mean_length;
                let count = *count as f32;
                if let Some(score) = scores.get_mut(*position) {
                    *score += rarity * count * (K1 + 1.0) / (count + K1 * (1.0 - B + B * length));
                }
            }
        }
        let mut found: Vec<(usize, f32)> = scores.into_iter().enumerate().filter(|(_, score)| *score > 0.0).collect();
        // The sort is stable, so equal scores stay in order.
        found.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        found.truncate(limit);
        found
    }
}

/// The words of a text, as they are indexed: identifiers split at case, digits and punctuation, lower case, English plurals cut. A text
/// of nothing but stop words keeps them, so that a tool named `all` can be found.
pub fn words(text: &str) -> Vec<String> {
    let raw = split(text);
    let telling: Vec<String> = raw.iter().filter(|word| !STOP_WORDS.contains(&word.as_str())).map(|word| stem(word)).collect();
    if telling.is_empty() { raw } else { telling }
}

/// Runs of letters or digits. `HTTPServer2Name` is `http`, `server`, `2`, `name`.
fn split(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut previous: Option<char> = None;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let begins = match previous {
            Some(before) if c.is_uppercase() => {
                !before.is_uppercase() || chars.peek().is_some_and(|next| next.is_lowercase() && before.is_uppercase())
            }
            Some(before) => c.is_numeric() != before.is_numeric(),
            None => true,
        };
        if (begins || !c.is_alphanumeric()) && !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        if c.is_alphanumeric() {
            word.extend(c.to_lowercase());
        }
        previous = c.is_alphanumeric().then_some(c);
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

/// The singular of an English plural; other words, and other languages, stay as they are.
fn stem(word: &str) -> String {
    if word.len() < 4 || !word.is_ascii() {
        return word.to_owned();
    }
    let cut = |ending: &str, by: &str| word.strip_suffix(ending).map(|stem| format!("{stem}{by}"));
    if word.ends_with("ss") || word.ends_with("us") || word.ends_with("is") {
        return word.to_owned();
    }
    cut("ies", "y")
        .or_else(|| cut("sses", "ss"))
        .or_else(|| cut("xes", "x"))
        .or_else(|| cut("ches", "ch"))
        .or_else(|| cut("shes", "sh"))
        .or_else(|| cut("s", ""))
        .unwrap_or_else(|| word.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_split() {
        assert_eq!(split("getHTTPResponse_code.v2"), ["get", "http", "response", "code", "v", "2"]);
        assert_eq!(split("user-profile/update"), ["user", "profile", "update"]);
        assert_eq!(split("WetterÄnderung für 東京"), ["wetter", "änderung", "für", "東京"]);
        assert_eq!(split(" .. "), [""; 0]);
    }

    #[test]
    fn plurals_and_stop_words_do_not_count() {
        assert_eq!(words("list the files of my repositories"), ["list", "file", "repository"]);
        assert_eq!(words("boxes classes branches status address"), ["box", "class", "branch", "status", "address"]);
        assert_eq!(words("what is it"), ["what", "is", "it"]);
    }

    fn index() -> Index {
        let tool = |name, description| Document { name, description, parameters: vec!["path", "where the file is"] };
        Index::new([
            tool("read_file", "Reads a text file"),
            tool("send_email", "Sends a message to someone"),
            tool("listFiles", "Lists what is in a folder"),
            tool("delete_file", "Removes a file for good"),
        ])
    }

    #[test]
    fn the_best_match_comes_first() {
        let best = |query: &str| index().search(query, 10).first().map(|(position, _)| *position);
        assert_eq!(best("send an e-mail: email to Ann"), Some(1));
        assert_eq!(best("please list all the files"), Some(2));
        assert_eq!(best("remove the file"), Some(3));
        assert_eq!(best("quantum"), None);
        assert_eq!(best(""), None);
        assert_eq!(index().search("file", 2).len(), 2);
        assert!(Index::new([]).search("file", 2).is_empty());
    }

    #[test]
    fn equal_scores_stay_in_order() {
        let same = || Document { name: "same", description: "tool", parameters: Vec::new() };
        let found = Index::new([same(), same(), same()]).search("same", 3);
        let positions: Vec<usize> = found.iter().map(|(position, _)| *position).collect();
        assert_eq!(positions, [0, 1, 2]);
    }
}
