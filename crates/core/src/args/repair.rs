//! The walk over a value beside the plan of its schema.

use serde_json::{Map, Number, Value};

use super::RepairNote;
use crate::json::{self, MAX_DEPTH, Step};
use crate::schema::{Branch, Node, NodeId, Plan, Schema, Types, step_into};

/// Most places that one walk visits. Branches of unions are tried one by one, which a hostile schema could nest without end.
const BUDGET: usize = 100_000;

/// How deep one walk recurses: three times the depth of a value, since a union is entered without going down in the value, and a union
/// that names itself would be entered for ever.
const MAX_NESTING: usize = 3 * MAX_DEPTH;

/// Up to here every integer is a float of its own, so a float stands for one integer only.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Repairs what is lossless, in place.
pub(super) fn mend(value: &mut Value, schema: &Schema, notes: &mut Vec<RepairNote>) {
    let mut walk = Walk::new(schema, Scope::Everything);
    walk.notes = std::mem::take(notes);
    walk.mend(value, Plan::ROOT, MAX_DEPTH);
    *notes = walk.notes;
}

/// Turns floats without a fraction into integers where only integers can stand: what the schema's author wrote in a default is read as
/// the same value a second time.
pub(super) fn make_floats_whole(value: &mut Value, schema: &Schema) {
    Walk::new(schema, Scope::Floats).mend(value, Plan::ROOT, MAX_DEPTH);
}

/// Fills defaults in; how many, or nothing if they never end (a default inside what it fills).
pub(super) fn fill(value: &mut Value, schema: &Schema) -> Option<usize> {
    let mut filler = Filler { schema, count: 0, budget: BUDGET, nesting: 0 };
    filler.fill(value, Plan::ROOT, MAX_DEPTH)?;
    Some(filler.count)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    Everything,
    Floats,
}

struct Walk<'s> {
    schema: &'s Schema,
    scope: Scope,
    path: Vec<Step>,
    notes: Vec<RepairNote>,
    budget: usize,
    nesting: usize,
}

impl<'s> Walk<'s> {
    fn new(schema: &'s Schema, scope: Scope) -> Self {
        Self { schema, scope, path: Vec::new(), notes: Vec::new(), budget: BUDGET, nesting: 0 }
    }

    /// `depth` is how many levels may still open below: what was decoded must stay readable as part of the whole.
    fn mend(&mut self, value: &mut Value, id: NodeId, depth: usize) {
        let Some(node) = self.schema.plan().node(id) else { return };
        if self.budget == 0 || self.nesting == MAX_NESTING {
            return;
        }
        self.budget -= 1;
        self.nesting += 1;
        if self.scope == Scope::Everything {
            self.decode(value, node, depth);
        }
        make_whole(value, node, |from, to| self.note(Some(from), Some(to)));
        if let Some(depth) = depth.checked_sub(1) {
            match value {
                Value::Object(map) => self.mend_object(map, node, depth),
                Value::Array(items) => {
                    for (index, item) in items.iter_mut().enumerate() {
                        if let Some(id) = node.prefix.get(index).copied().or(node.items) {
                            self.enter(Step::Index(index), |walk| walk.mend(item, id, depth));
                        }
                    }
                }
                _ => {}
            }
        }
        for union in &node.unions {
            self.mend_union(value, union, depth);
        }
        self.nesting -= 1;
    }

    fn mend_object(&mut self, map: &mut Map<String, Value>, node: &'s Node, depth: usize) {
        let plan = self.schema.plan();
        for property in &node.properties {
            let Some(types) = plan.node(property.node).map(|node| node.types) else { continue };
            let may_be_absent = !property.required || property.default.is_some();
            match map.get_mut(&property.name) {
                Some(value) if self.scope == Scope::Floats => {
                    self.enter(Step::Key(property.name.clone()), |walk| walk.mend(value, property.node, depth));
                }
                None if self.scope == Scope::Floats => {}
                Some(Value::Null) if may_be_absent && !types.meets(Types::NULL) => {
                    map.shift_remove(&property.name);
                    self.enter(Step::Key(property.name.clone()), |walk| walk.note(Some(Value::Null), None));
                }
                Some(value) => {
                    self.enter(Step::Key(property.name.clone()), |walk| walk.mend(value, property.node, depth));
                }
                None if !may_be_absent && plan.node(property.node).is_some_and(Node::names_null) => {
                    map.insert(property.name.clone(), Value::Null);
                    self.enter(Step::Key(property.name.clone()), |walk| walk.note(None, Some(Value::Null)));
                }
                None => {}
            }
        }
        if let Some(id) = node.additional {
            for (name, value) in map.iter_mut() {
                if !node.properties.iter().any(|property| property.name == *name) {
                    self.enter(Step::Key(name.clone()), |walk| walk.mend(value, id, depth));
                }
            }
        }
    }

    /// Chooses the branch that is meant, if that is certain.
    fn mend_union(&mut self, value: &mut Value, union: &'s [Branch], depth: usize) {
        let candidates = candidates(self.schema.plan(), value, union);
        match candidates.as_slice() {
            [] => {}
            // Nothing else can be meant, so what is wrong below is wrong with this one.
            [only] => self.mend(value, only.node, depth),
            several => {
                if several.iter().any(|branch| self.schema.part_is_valid(&branch.pointer, value) != Some(false)) {
                    return;
                }
                let mut found: Option<(Value, Vec<RepairNote>)> = None;
                for branch in several {
                    let mut attempt = value.clone();
                    let kept = std::mem::take(&mut self.notes);
                    self.mend(&mut attempt, branch.node, depth);
                    let notes = std::mem::replace(&mut self.notes, kept);
                    if self.schema.part_is_valid(&branch.pointer, &attempt) != Some(true) {
                        continue;
                    }
                    match &found {
                        Some((other, _)) if *other != attempt => return,
                        _ => found = Some((attempt, notes)),
                    }
                }
                if let Some((attempt, notes)) = found {
                    *value = attempt;
                    self.notes.extend(notes);
                }
            }
        }
    }

    /// A string where none can stand, whose text is exactly one value of a type that can.
    fn decode(&mut self, value: &mut Value, node: &Node, depth: usize) {
        let Value::String(text) = &*value else { return };
        if node.types.meets(Types::STRING) {
            return;
        }
        let Ok(document) = json::read_within(text, depth) else { return };
        let decoded = document.value;
        let is_meant = match &decoded {
            // The parser tolerates space around a value; for a scalar, that is not exactly its text.
            Value::Bool(is) => node.types.meets(Types::BOOLEAN) && text == if *is { "true" } else { "false" },
            Value::Number(number) => {
                let wanted = if number.is_f64() { Types::FRACTION } else { Types::INTEGER };
                node.types.meets(wanted) && *text == number.to_string()
            }
            Value::Array(_) => node.types.meets(Types::ARRAY),
            Value::Object(_) => node.types.meets(Types::OBJECT),
            Value::Null | Value::String(_) => false,
        };
        if !is_meant {
            return;
        }
        let path = json::dotted(&self.path);
        for replaced in document.replaced {
            let path = replaced.path.iter().fold(path.clone(), |path, step| step_into(&path, &json::dotted(std::slice::from_ref(step))));
            self.notes.push(RepairNote { path, from: Some(replaced.written.into()), to: Some(replaced.read.into()) });
        }
        self.notes.push(RepairNote { path, from: Some(std::mem::take(value)), to: Some(decoded.clone()) });
        *value = decoded;
    }

    fn note(&mut self, from: Option<Value>, to: Option<Value>) {
        self.notes.push(RepairNote { path: json::dotted(&self.path), from, to });
    }

    fn enter(&mut self, step: Step, inside: impl FnOnce(&mut Self)) {
        self.path.push(step);
        inside(self);
        self.path.pop();
    }
}

/// Turns a float without a fraction into the integer, where only integers can stand.
fn make_whole(value: &mut Value, node: &Node, noted: impl FnOnce(Value, Value)) {
    let Value::Number(number) = &*value else { return };
    if !number.is_f64() || node.types.meets(Types::FRACTION) || !node.types.meets(Types::INTEGER) {
        return;
    }
    let Some(float) = number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < EXACT) else { return };
    let whole = Value::Number(Number::from(float as i64));
    noted(std::mem::replace(value, whole.clone()), whole);
}

/// The branches that a value could fit after repairs: by its type, and by properties that have to be one of counted values.
fn candidates<'s>(plan: &'s Plan, value: &Value, union: &'s [Branch]) -> Vec<&'s Branch> {
    let types = Types::of(value);
    let by_type: Vec<_> = union.iter().filter(|branch| plan.node(branch.node).is_some_and(|node| node.types.meets(types))).collect();
    let told_apart: Vec<_> = by_type.iter().copied().filter(|branch| !contradicts(plan, value, branch.node)).collect();
    if told_apart.is_empty() { by_type } else { told_apart }
}

fn contradicts(plan: &Plan, value: &Value, branch: NodeId) -> bool {
    let Some(node) = plan.node(branch) else { return false };
    if node.options.as_ref().is_some_and(|options| !options.contains(value)) {
        return true;
    }
    let Value::Object(map) = value else { return false };
    node.properties.iter().any(|property| {
        let options = plan.node(property.node).and_then(|node| node.options.as_ref());
        matches!((map.get(&property.name), options), (Some(given), Some(options)) if !options.contains(given))
    })
}

struct Filler<'s> {
    schema: &'s Schema,
    count: usize,
    budget: usize,
    nesting: usize,
}

impl Filler<'_> {
    fn fill(&mut self, value: &mut Value, id: NodeId, depth: usize) -> Option<()> {
        let plan = self.schema.plan();
        let Some(node) = plan.node(id).filter(|node| node.has_defaults) else { return Some(()) };
        self.budget = self.budget.checked_sub(1)?;
        if self.nesting == MAX_NESTING {
            return None;
        }
        self.nesting += 1;
        self.fill_node(value, node, depth)?;
        self.nesting -= 1;
        Some(())
    }

    fn fill_node(&mut self, value: &mut Value, node: &Node, depth: usize) -> Option<()> {
        let plan = self.schema.plan();
        match value {
            Value::Object(map) => {
                let depth = depth.checked_sub(1)?;
                for property in &node.properties {
                    let slot = match (map.get_mut(&property.name), &property.default) {
                        (Some(value), _) => value,
                        (None, Some(default)) => {
                            self.count += 1;
                            map.entry(property.name.as_str()).or_insert_with(|| default.clone())
                        }
                        (None, None) => continue,
                    };
                    self.fill(slot, property.node, depth)?;
                }
                if let Some(id) = node.additional.filter(|id| plan.node(*id).is_some_and(|node| node.has_defaults)) {
                    for (name, value) in map.iter_mut() {
                        if !node.properties.iter().any(|property| property.name == *name) {
                            self.fill(value, id, depth)?;
                        }
                    }
                }
            }
            Value::Array(items) => {
                let depth = depth.checked_sub(1)?;
                for (index, item) in items.iter_mut().enumerate() {
                    if let Some(id) = node.prefix.get(index).copied().or(node.items) {
                        self.fill(item, id, depth)?;
                    }
                }
            }
            _ => return Some(()),
        }
        for union in &node.unions {
            self.fill_union(value, union, depth)?;
        }
        Some(())
    }

    /// Fills in the branch that a value belongs to; none where it could be another.
    fn fill_union(&mut self, value: &mut Value, union: &[Branch], depth: usize) -> Option<()> {
        let candidates = candidates(self.schema.plan(), value, union);
        let id = match candidates.as_slice() {
            [only] => only.node,
            several => {
                let mut valid = several.iter().filter(|branch| self.schema.part_is_valid(&branch.pointer, value) == Some(true));
                match (valid.next(), valid.next()) {
                    (Some(one), None) => one.node,
                    _ => return Some(()),
                }
            }
        };
        self.fill(value, id, depth)
    }
}
