//! Fewer tools, where there are more than a small model can tell apart.

use toolwright_core::rank::{Document, Index};

use super::gate::Offer;

/// Up to so many tools are all shown: the list stays the same from request to request, so the state after it is kept.
pub(crate) const MOST: usize = 12;
/// So many are left otherwise; they are read anew for each request, at some 60 tokens each.
const LEFT: usize = 8;

/// The tools that fit `request` best, in their own order, and those in `keep`.
pub(crate) fn narrow(offers: Vec<Offer>, request: &str, keep: &[&str]) -> Vec<Offer> {
    if offers.len() <= MOST {
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
    let mut chosen: Vec<usize> = index.search(request, LEFT).into_iter().map(|(position, _)| position).collect();
    for (position, offer) in offers.iter().enumerate() {
        // Where too few share a word with the request, the first ones fill up.
        if !chosen.contains(&position) && (keep.contains(&offer.text.name()) || chosen.len() < LEFT) {
            chosen.push(position);
        }
    }
    offers.into_iter().enumerate().filter(|(position, _)| chosen.contains(position)).map(|(_, offer)| offer).collect()
}
