//! What a repair has to know about a schema, laid out once when the schema is made.
//!
//! A node merges what a `$ref`, its siblings and `allOf` say about one place. It may always allow more than the schema does (conditions,
//! dynamic references and the like are left to the validator), never less: so "no string can stand here" is certain, and a repair that
//! rests on it can't touch a value that was right.

use std::collections::{BTreeMap, HashMap, VecDeque};

use jsonschema::Draft;
use serde_json::{Map, Value};

/// Most nodes of one plan. What lies beyond is validated, but neither repaired nor given defaults.
const MAX_NODES: usize = 4_096;

/// Most places that validating one value may visit (some milliseconds).
const MAX_VISITS: u64 = 100_000;

/// Index of a [`Node`] in its [`Plan`].
pub(crate) type NodeId = usize;

/// A set of JSON types, with integers apart from other numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Types(u8);

impl Types {
    pub(crate) const NULL: Self = Self(1);
    pub(crate) const BOOLEAN: Self = Self(2);
    pub(crate) const INTEGER: Self = Self(4);
    /// Numbers that are no integers.
    pub(crate) const FRACTION: Self = Self(8);
    pub(crate) const STRING: Self = Self(16);
    pub(crate) const ARRAY: Self = Self(32);
    pub(crate) const OBJECT: Self = Self(64);
    const NUMBER: Self = Self(4 | 8);
    const NONE: Self = Self(0);
    pub(crate) const ANY: Self = Self(127);

    /// Whether the two sets share a type.
    pub(crate) fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The types that a value has: a whole float is an integer and a number.
    pub(crate) fn of(value: &Value) -> Self {
        match value {
            Value::Null => Self::NULL,
            Value::Bool(_) => Self::BOOLEAN,
            Value::Number(number) if !number.is_f64() => Self::INTEGER,
            Value::Number(number) if number.as_f64().is_some_and(|float| float.fract() == 0.0) => Self::NUMBER,
            Value::Number(_) => Self::FRACTION,
            Value::String(_) => Self::STRING,
            Value::Array(_) => Self::ARRAY,
            Value::Object(_) => Self::OBJECT,
        }
    }

    fn named(names: &Value) -> Self {
        let one = |name: &Value| match name.as_str() {
            Some("null") => Self::NULL,
            Some("boolean") => Self::BOOLEAN,
            Some("integer") => Self::INTEGER,
            Some("number") => Self::NUMBER,
            Some("string") => Self::STRING,
            Some("array") => Self::ARRAY,
            Some("object") => Self::OBJECT,
            _ => Self::ANY,
        };
        match names {
            Value::Array(names) => names.iter().map(one).fold(Self::NONE, Self::or),
            name => one(name),
        }
    }
}

/// One place of the schema.
#[derive(Debug)]
pub(crate) struct Node {
    /// Every type that could hold here.
    pub(crate) types: Types,
    /// The values that could hold here, where they are counted out.
    pub(crate) options: Option<Vec<Value>>,
    pub(crate) properties: Vec<Property>,
    /// For properties that are not listed.
    pub(crate) additional: Option<NodeId>,
    pub(crate) prefix: Vec<NodeId>,
    /// For items after the prefix.
    pub(crate) items: Option<NodeId>,
    pub(crate) unions: Vec<Union>,
    default: Option<Value>,
    /// How often a validator comes here for one value: more than once where `allOf` and references lead to one place on several ways.
    weight: u64,
    /// Whether a default stands anywhere below.
    pub(crate) has_defaults: bool,
}

impl Node {
    fn unknown() -> Self {
        Self {
            types: Types::ANY,
            options: None,
            properties: Vec::new(),
            additional: None,
            prefix: Vec::new(),
            items: None,
            unions: Vec::new(),
            default: None,
            weight: 1,
            has_defaults: false,
        }
    }

    /// Whether the schema speaks of null here, and does not only fail to rule it out.
    pub(crate) fn names_null(&self) -> bool {
        self.types != Types::ANY && self.types.meets(Types::NULL)
    }

    fn children(&self) -> impl Iterator<Item = NodeId> {
        let properties = self.properties.iter().map(|property| property.node);
        let branches = self.unions.iter().flatten().map(|branch| branch.node);
        properties.chain(self.additional).chain(self.prefix.iter().copied()).chain(self.items).chain(branches)
    }
}

/// A property that the schema lists.
#[derive(Debug)]
pub(crate) struct Property {
    pub(crate) name: String,
    pub(crate) node: NodeId,
    pub(crate) required: bool,
    /// Filled in where the property is absent. A default of the wrong type is no default.
    pub(crate) default: Option<Value>,
}

/// The branches of an `anyOf` or `oneOf`.
pub(crate) type Union = Vec<Branch>;

/// One branch, and where it stands in the schema.
#[derive(Debug)]
pub(crate) struct Branch {
    pub(crate) node: NodeId,
    pub(crate) pointer: String,
}

/// The nodes of a schema; the first is the root.
#[derive(Debug)]
pub(crate) struct Plan {
    nodes: Vec<Node>,
    /// Whether any place takes integers and no other numbers.
    pub(crate) has_integers: bool,
    /// Whether a default holds a number with a fraction.
    pub(crate) has_float_defaults: bool,
    /// Whether one place could be visited over and over, so that a value has to be weighed before it is validated.
    may_explode: bool,
}

impl Plan {
    pub(crate) const ROOT: NodeId = 0;

    pub(crate) fn new(schema: &Value, draft: Draft) -> Self {
        let legacy = matches!(draft, Draft::Draft4 | Draft::Draft6 | Draft::Draft7);
        let mut builder = Builder { root: schema, legacy, known: HashMap::new(), nodes: Vec::new() };
        builder.node(vec![Place { pointer: "#".to_owned(), schema }], 0);
        let mut plan = Self { nodes: builder.nodes, has_integers: false, has_float_defaults: false, may_explode: false };
        plan.has_integers = plan.nodes.iter().any(|node| node.types.meets(Types::INTEGER) && !node.types.meets(Types::FRACTION));
        plan.take_defaults();
        plan.mark_defaults();
        let branches = plan.nodes.iter().any(|node| node.weight > 1 || !node.unions.is_empty());
        plan.may_explode = branches && plan.paths() > MAX_VISITS;
        plan
    }

    pub(crate) fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id)
    }

    /// Whether a default stands anywhere.
    pub(crate) fn has_defaults(&self) -> bool {
        self.node(Self::ROOT).is_some_and(|root| root.has_defaults)
    }

    /// Whether a value can be validated in bounded time. A validator tries each branch of a union down to the leaves, and follows each
    /// reference anew, so a union that leads back to itself costs a multiple for each level that a value is deep: without this, a model
    /// could stop a host with a few hundred bytes.
    pub(crate) fn is_affordable(&self, value: &Value) -> bool {
        !self.may_explode || self.visits(value, Self::ROOT, &mut HashMap::new()) <= MAX_VISITS
    }

    /// How many places a validator visits at most that tries every branch of the value's type.
    fn visits(&self, value: &Value, id: NodeId, known: &mut HashMap<(*const Value, NodeId), u64>) -> u64 {
        let Some(node) = self.nodes.get(id).filter(|node| node.types.meets(Types::of(value))) else { return 1 };
        let key = (std::ptr::from_ref(value), id);
        if let Some(visits) = known.get(&key) {
            return *visits;
        }
        // A union that names itself at the same place is not entered again.
        known.insert(key, 1);
        let mut visits: u64 = 1;
        let mut add = |value: &Value, id: NodeId| visits = visits.saturating_add(self.visits(value, id, known));
        match value {
            Value::Object(map) => {
                for (name, value) in map {
                    let listed = node.properties.iter().find(|property| property.name == *name).map(|property| property.node);
                    if let Some(id) = listed.or(node.additional) {
                        add(value, id);
                    }
                }
            }
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    if let Some(id) = node.prefix.get(index).copied().or(node.items) {
                        add(item, id);
                    }
                }
            }
            _ => {}
        }
        for branch in node.unions.iter().flatten() {
            add(value, branch.node);
        }
        let visits = visits.saturating_mul(node.weight);
        known.insert(key, visits);
        visits
    }

    /// How many paths lead from the root to any node; beyond counting where one leads in a circle.
    fn paths(&self) -> u64 {
        let mut incoming = vec![0_usize; self.nodes.len()];
        for child in self.nodes.iter().flat_map(Node::children) {
            if let Some(count) = incoming.get_mut(child) {
                *count += 1;
            }
        }
        let mut paths = vec![0_u64; self.nodes.len()];
        let mut open = vec![Self::ROOT];
        // A root that something refers to stands in a circle.
        if let (Some(first), Some(0)) = (paths.first_mut(), incoming.first()) {
            *first = 1;
        } else {
            return u64::MAX;
        }
        let (mut total, mut done) = (0_u64, 0);
        while let Some(id) = open.pop() {
            let weight = self.nodes.get(id).map_or(1, |node| node.weight);
            let here = paths.get(id).copied().unwrap_or_default().saturating_mul(weight);
            total = total.saturating_add(here);
            done += 1;
            for child in self.nodes.get(id).into_iter().flat_map(Node::children) {
                if let (Some(paths), Some(left)) = (paths.get_mut(child), incoming.get_mut(child)) {
                    *paths = paths.saturating_add(here);
                    *left -= 1;
                    if *left == 0 {
                        open.push(child);
                    }
                }
            }
        }
        if done == self.nodes.len() { total } else { u64::MAX }
    }

    /// Gives properties their defaults once every node is there: a recursive one names itself before it is built.
    fn take_defaults(&mut self) {
        let defaults: Vec<Option<Value>> = self.nodes.iter().map(|node| usable_default(node).cloned()).collect();
        for property in self.nodes.iter_mut().flat_map(|node| &mut node.properties) {
            property.default = defaults.get(property.node).cloned().flatten();
            self.has_float_defaults |= property.default.as_ref().is_some_and(has_floats);
        }
    }

    fn mark_defaults(&mut self) {
        let mut parents: Vec<Vec<NodeId>> = vec![Vec::new(); self.nodes.len()];
        let mut marked = Vec::new();
        for (id, node) in self.nodes.iter().enumerate() {
            for child in node.children() {
                if let Some(parents) = parents.get_mut(child) {
                    parents.push(id);
                }
            }
            if node.properties.iter().any(|property| property.default.is_some()) {
                marked.push(id);
            }
        }
        while let Some(id) = marked.pop() {
            if let Some(node) = self.nodes.get_mut(id)
                && !node.has_defaults
            {
                node.has_defaults = true;
                marked.extend(parents.get(id).into_iter().flatten());
            }
        }
    }
}

/// A subschema and where it stands.
#[derive(Clone)]
struct Place<'s> {
    pointer: String,
    schema: &'s Value,
}

impl<'s> Place<'s> {
    fn at(&self, keyword: &str, schema: &'s Value) -> Self {
        Self { pointer: format!("{}/{}", self.pointer, keyword.replace('~', "~0").replace('/', "~1")), schema }
    }
}

struct Builder<'s> {
    root: &'s Value,
    /// Before 2019-09 what stands beside a `$ref` did not count.
    legacy: bool,
    known: HashMap<Vec<String>, NodeId>,
    nodes: Vec<Node>,
}

/// What the places of one node say together.
#[derive(Default)]
struct Merged<'s> {
    properties: Vec<(&'s str, Vec<Place<'s>>)>,
    listed: BTreeMap<&'s str, usize>,
    required: Vec<&'s str>,
    additional: Vec<Place<'s>>,
    prefix: Vec<Vec<Place<'s>>>,
    items: Vec<Place<'s>>,
    unions: Vec<Vec<Place<'s>>>,
}

impl<'s> Builder<'s> {
    fn node(&mut self, places: Vec<Place<'s>>, depth: usize) -> NodeId {
        let mut key: Vec<String> = places.iter().map(|place| place.pointer.clone()).collect();
        key.sort_unstable();
        if let Some(id) = self.known.get(&key) {
            return *id;
        }
        let id = self.nodes.len();
        self.nodes.push(Node::unknown());
        self.known.insert(key, id);
        if id < MAX_NODES && depth < 2 * crate::json::MAX_DEPTH {
            let node = self.build(places, depth + 1);
            if let Some(slot) = self.nodes.get_mut(id) {
                *slot = node;
            }
        }
        id
    }

    fn build(&mut self, places: Vec<Place<'s>>, depth: usize) -> Node {
        let mut node = Node::unknown();
        let mut merged = Merged::default();
        let mut seen: Vec<String> = places.iter().map(|place| place.pointer.clone()).collect();
        let mut ways: Vec<(usize, usize)> = Vec::new();
        let mut open: VecDeque<(usize, Place<'s>)> = places.into_iter().enumerate().collect();
        while let Some((at, place)) = open.pop_front() {
            let mut more = Vec::new();
            match place.schema {
                Value::Bool(false) => node.types = Types::NONE,
                Value::Object(map) => self.read(&place, map, &mut node, &mut merged, &mut more),
                _ => {}
            }
            for next in more {
                let known = seen.iter().position(|pointer| *pointer == next.pointer);
                ways.push((at, known.unwrap_or(seen.len())));
                if known.is_none() {
                    seen.push(next.pointer.clone());
                    open.push_back((seen.len() - 1, next));
                }
            }
            if seen.len() > MAX_NODES {
                break;
            }
        }
        node.weight = most_ways(seen.len(), &ways);
        node.additional = self.optional(merged.additional, depth);
        node.items = self.optional(merged.items, depth);
        node.prefix = merged.prefix.into_iter().map(|places| self.node(places, depth)).collect();
        for (name, places) in merged.properties {
            let id = self.node(places, depth);
            let required = merged.required.contains(&name);
            node.properties.push(Property { name: name.to_owned(), node: id, required, default: None });
        }
        for places in merged.unions {
            let mut types = Types::NONE;
            let mut branches = Vec::new();
            for place in places {
                let pointer = place.pointer.clone();
                let id = self.node(vec![place], depth);
                types = types.or(self.nodes.get(id).map_or(Types::ANY, |branch| branch.types));
                branches.push(Branch { node: id, pointer });
            }
            node.types = node.types.and(types);
            node.unions.push(branches);
        }
        node
    }

    fn optional(&mut self, places: Vec<Place<'s>>, depth: usize) -> Option<NodeId> {
        (!places.is_empty()).then(|| self.node(places, depth))
    }

    /// Adds what one subschema says; what it sends on to goes to `more`.
    fn read(&self, place: &Place<'s>, map: &'s Map<String, Value>, node: &mut Node, merged: &mut Merged<'s>, more: &mut Vec<Place<'s>>) {
        // References inside an embedded resource have another base: left to the validator.
        if place.pointer != "#" && (map.contains_key("$id") || (self.legacy && map.contains_key("id"))) {
            return;
        }
        // The default nearest to the property counts, before that of what it refers to.
        if node.default.is_none() {
            node.default = map.get("default").cloned();
        }
        if let Some(Value::String(reference)) = map.get("$ref") {
            more.extend(self.resolve(reference));
            if self.legacy {
                return;
            }
        }
        if let Some(Value::Array(all)) = map.get("allOf") {
            let at = place.at("allOf", place.schema);
            more.extend(all.iter().enumerate().map(|(index, schema)| at.at(&index.to_string(), schema)));
        }
        if let Some(names) = map.get("type") {
            node.types = node.types.and(Types::named(names));
        }
        let constant = map.get("const").map(std::slice::from_ref);
        let options = map.get("enum").and_then(Value::as_array).map(Vec::as_slice);
        for options in constant.into_iter().chain(options) {
            let types = options.iter().map(Types::of).fold(Types::NONE, Types::or);
            node.types = node.types.and(types);
            node.options = Some(match node.options.take() {
                Some(known) => known.into_iter().filter(|option| options.contains(option)).collect(),
                None => options.to_vec(),
            });
        }
        if let Some(Value::Object(properties)) = map.get("properties") {
            let at = place.at("properties", place.schema);
            for (name, schema) in properties {
                let index = *merged.listed.entry(name).or_insert_with(|| {
                    merged.properties.push((name, Vec::new()));
                    merged.properties.len() - 1
                });
                if let Some((_, places)) = merged.properties.get_mut(index) {
                    places.push(at.at(name, schema));
                }
            }
        }
        if let Some(Value::Array(required)) = map.get("required") {
            merged.required.extend(required.iter().filter_map(Value::as_str));
        }
        if let Some(schema @ Value::Object(_)) = map.get("additionalProperties")
            && !map.contains_key("patternProperties")
        {
            merged.additional.push(place.at("additionalProperties", schema));
        }
        let (prefix, rest) = match map.get("items") {
            Some(Value::Array(items)) => (Some(("items", items)), ("additionalItems", map.get("additionalItems"))),
            items => (map.get("prefixItems").and_then(Value::as_array).map(|prefix| ("prefixItems", prefix)), ("items", items)),
        };
        if let Some((keyword, schemas)) = prefix {
            let at = place.at(keyword, place.schema);
            for (index, schema) in schemas.iter().enumerate() {
                let place = at.at(&index.to_string(), schema);
                match merged.prefix.get_mut(index) {
                    Some(places) => places.push(place),
                    None => merged.prefix.push(vec![place]),
                }
            }
        }
        if let (keyword, Some(schema @ Value::Object(_))) = rest {
            merged.items.push(place.at(keyword, schema));
        }
        for keyword in ["anyOf", "oneOf"] {
            if let Some(Value::Array(branches)) = map.get(keyword) {
                let at = place.at(keyword, place.schema);
                merged.unions.push(branches.iter().enumerate().map(|(index, schema)| at.at(&index.to_string(), schema)).collect());
            }
        }
    }

    /// What a reference inside the document names.
    fn resolve(&self, reference: &str) -> Option<Place<'s>> {
        let fragment = reference.strip_prefix('#')?;
        if !fragment.is_empty() && !fragment.starts_with('/') {
            return self.anchored(fragment);
        }
        let fragment = decoded(fragment)?;
        let mut place = Place { pointer: "#".to_owned(), schema: self.root };
        for step in fragment.split('/').skip(1) {
            let name = step.replace("~1", "/").replace("~0", "~");
            let next = match place.schema {
                Value::Object(map) => map.get(&name)?,
                Value::Array(items) => items.get(name.parse::<usize>().ok()?)?,
                _ => return None,
            };
            // A pointer through an embedded resource is left to the validator.
            if next.get("$id").is_some_and(Value::is_string) {
                return None;
            }
            place = place.at(&name, next);
        }
        Some(place)
    }

    /// A definition with that `$anchor`; others are left to the validator.
    fn anchored(&self, anchor: &str) -> Option<Place<'s>> {
        let root = Place { pointer: "#".to_owned(), schema: self.root };
        ["$defs", "definitions"].into_iter().find_map(|keyword| {
            let at = root.at(keyword, self.root);
            let definitions = self.root.get(keyword)?.as_object()?;
            let (name, schema) = definitions.iter().find(|(_, schema)| schema.get("$anchor").is_some_and(|name| name == anchor))?;
            Some(at.at(name, schema))
        })
    }
}

/// The number of ways that lead to the place with most of them; places that lead in a circle count once.
fn most_ways(places: usize, ways: &[(usize, usize)]) -> u64 {
    // Nearly every place is reached on one way only.
    if ways.is_empty() {
        return 1;
    }
    let mut incoming = vec![0_usize; places];
    for (_, to) in ways {
        if let Some(count) = incoming.get_mut(*to) {
            *count += 1;
        }
    }
    let mut counts: Vec<u64> = incoming.iter().map(|incoming| u64::from(*incoming == 0)).collect();
    let mut open: Vec<usize> = incoming.iter().enumerate().filter(|(_, incoming)| **incoming == 0).map(|(place, _)| place).collect();
    while let Some(from) = open.pop() {
        let here = counts.get(from).copied().unwrap_or(1);
        for (_, to) in ways.iter().filter(|(at, _)| *at == from) {
            if let (Some(count), Some(left)) = (counts.get_mut(*to), incoming.get_mut(*to)) {
                *count = count.saturating_add(here);
                *left -= 1;
                if *left == 0 {
                    open.push(*to);
                }
            }
        }
    }
    counts.into_iter().max().unwrap_or(1).max(1)
}

/// A default that could hold where it is given. Generators write `"default": null` beside `"type": "string"` for "absent".
fn usable_default(node: &Node) -> Option<&Value> {
    let default = node.default.as_ref()?;
    let fits = node.types.meets(Types::of(default)) && node.options.as_ref().is_none_or(|options| options.contains(default));
    fits.then_some(default)
}

fn has_floats(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.is_f64(),
        Value::Array(items) => items.iter().any(has_floats),
        Value::Object(map) => map.values().any(has_floats),
        _ => false,
    }
}

/// A URI fragment without its percent encoding.
fn decoded(fragment: &str) -> Option<String> {
    if !fragment.contains('%') {
        return Some(fragment.to_owned());
    }
    let mut out = Vec::with_capacity(fragment.len());
    let mut bytes = fragment.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let high = char::from(bytes.next()?).to_digit(16)?;
            let low = char::from(bytes.next()?).to_digit(16)?;
            out.push((high * 16 + low) as u8);
        } else {
            out.push(byte);
        }
    }
    String::from_utf8(out).ok()
}
