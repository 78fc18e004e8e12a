//! Fewer tools, where there are more than a small model can tell apart.

use toolwright_core::rank::{Document, Index};

use super::gate::Offer;

/// Up to so many tools are all shown: the list stays the same from request to request, so the state after it is kept.
const MOST: usize = 12;
/// The longest list that is shown whole, in characters, two of which are about a token.
const MOST_TEXT: usize = 6000;
/// So many tools are left otherwise, and of so many characters; they are read anew for each request, in some 7 ms a token.
const LEFT: (usize, usize) = (8, 3000);

/// The tools that fit `request` best, in their own order; those in `keep` come first in the choice.
pub(crate) fn narrow(offers: Vec<Offer>, request: &str, keep: &[&str]) -> Vec<Offer> {
    let size = |offer: &Offer| offer.text.text().chars().count();
    if offers.len() <= MOST && offers.iter().map(size).sum::<usize>() <= MOST_TEXT {
        return offers;
    }
    let documents = offers.iter().map(|offer| {
        let properties = offer.text.parameters().get("properties").and_then(serde_json::Value::as_object).into_iter().flatten();
        let parameters = properties.flat_map(|(name, schema)| {
            let description = schema.get("description").and_then(serde_json::Value::as_str);
            std::iter::once(name.as_str()).chain(description)
        });
        Document { name: offer.text.name(), description: offer.text.description(), parameters: parameters.collect() }
    });
    let index = Index::new(documents);
    let kept = offers.iter().enumerate().filter(|(_, offer)| keep.contains(&offer.text.name())).map(|(position, _)| position);
    let found = index.search(request, offers.len()).into_iter().map(|(position, _)| position);
    // Where too few share a word with the request, the first ones fill up.
    let candidates = kept.chain(found).chain(0..offers.len());
    let (mut chosen, mut text) = (Vec::new(), 0);
    for position in candidates {
        let Some(offer) = offers.get(position).filter(|_| !chosen.contains(&position) && chosen.len() < LEFT.0) else { continue };
        if chosen.is_empty() || text + size(offer) <= LEFT.1 {
            text += size(offer);
            chosen.push(position);
        }
    }
    offers.into_iter().enumerate().filter(|(position, _)| chosen.contains(position)).map(|(_, offer)| offer).collect()
}

#[cfg(test)]
mod tests {
    use super::super::prompt::ToolText;
    use super::*;

    fn offers(names: &[&str], padding: usize) -> Vec<Offer> {
        let text = |name: &&str| ToolText::new(name, &format!("{name} {}", "x".repeat(padding)), &serde_json::json!({"type": "object"}));
        names.iter().map(|name| Offer { text: text(name), read_only: true }).collect()
    }

    fn names(offers: &[Offer]) -> Vec<&str> {
        offers.iter().map(|offer| offer.text.name()).collect()
    }

    #[test]
    fn a_short_list_stays_as_it_is() {
        let all = offers(&["apple", "pear", "plum"], 10);
        assert_eq!(names(&narrow(all.clone(), "plum", &[])), names(&all));
    }

    #[test]
    fn a_long_list_keeps_what_fits_and_its_order() {
        let many = ["a1", "b1", "c1", "d1", "e1", "f1", "g1", "h1", "i1", "j1", "k1", "last", "apple", "pear", "plum"];
        let left = narrow(offers(&many, 10), "a plum and an apple", &["pear"]);
        assert_eq!(names(&left), ["a1", "b1", "c1", "d1", "e1", "apple", "pear", "plum"]);
    }

    #[test]
    fn long_schemas_count_too() {
        let left = narrow(offers(&["apple", "pear", "plum", "fig", "kiwi", "lime", "date", "nut", "corn"], 290), "plum", &[]);
        let size: usize = left.iter().map(|offer| offer.text.text().len()).sum();
        assert!(size <= MOST_TEXT && names(&left).contains(&"plum"), "{size}");
    }
}
