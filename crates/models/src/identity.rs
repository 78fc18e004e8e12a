//! Which call a piece of a streamed call belongs to.
//!
//! Servers differ in what they send: ids on the first piece, on every piece, blank, new on every piece, or never; indexes that count,
//! that are always 0, or that are missing; names on the first piece, on every piece, or in parts; arguments in fragments, whole, or as
//! an object. So no one of the four decides: a piece is placed by id, index, name and by whether the arguments so far are one whole JSON
//! value. The order of the questions below is the order of trust.
//!
//! | sent again | means |
//! |---|---|
//! | the id of a call, and fragments | more of that call |
//! | the id of a call, the name, and whole arguments | that call once more: it is updated; a second call if both stand in one delta |
//! | the id of a call, but another index or name | a second call that was given the same id |
//! | an index, with a new id and a name | a second call that was given the same index |
//! | an index, with a new id and no name | more of that call, while its arguments are not whole |
//! | an index or nothing, and a name | more of a call of that name that is not whole; else a new call |
//! | an index or nothing, and no name | more of the call there |

use std::borrow::Cow;

use serde_json::{Map, Value};

/// A piece of a call as it came. Blank ids and names are absent.
#[derive(Debug)]
pub(crate) struct Piece<'a> {
    pub(crate) index: Option<u64>,
    pub(crate) id: Option<Cow<'a, str>>,
    pub(crate) name: Option<Cow<'a, str>>,
    pub(crate) arguments: Arguments<'a>,
    /// Where it stands in its delta, and among how many.
    pub(crate) position: usize,
    pub(crate) among: usize,
}

/// Arguments as they came.
#[derive(Debug)]
pub(crate) enum Arguments<'a> {
    /// Null or not there.
    Absent,
    /// A text: a fragment, or all.
    Text(Cow<'a, str>),
    /// Any other JSON, which is all there is.
    Json(&'a str),
}

impl Piece<'_> {
    fn has_arguments(&self) -> bool {
        match &self.arguments {
            Arguments::Absent => false,
            Arguments::Text(text) => !text.trim().is_empty(),
            Arguments::Json(_) => true,
        }
    }

    /// Whether its arguments may be the beginning of an object.
    fn begins_value(&self) -> bool {
        match &self.arguments {
            Arguments::Absent => false,
            Arguments::Text(text) => text.trim_start().starts_with('{'),
            Arguments::Json(_) => true,
        }
    }

    /// Whether its arguments are a whole value by themselves.
    fn is_whole(&self) -> bool {
        match &self.arguments {
            Arguments::Absent => false,
            Arguments::Text(text) => {
                let mut scan = Scan::default();
                scan.read(text);
                scan.is_whole()
            }
            Arguments::Json(_) => true,
        }
    }
}

/// A call while it comes in.
#[derive(Debug, Default)]
pub(crate) struct OpenCall {
    pub(crate) index: Option<u64>,
    pub(crate) id: Option<String>,
    pub(crate) name: String,
    pub(crate) arguments: String,
    /// Provider JSON beside the known fields.
    pub(crate) rest: Map<String, Value>,
    scan: Scan,
    /// The delta it was opened in.
    delta: u64,
    /// Counts up with every piece of any call.
    touched: u64,
    /// A piece with its name and nothing else came when it was whole already: an echo, or the head of a second call. What comes next tells.
    echoed: bool,
}

impl OpenCall {
    /// Whether the arguments so far are one whole JSON value.
    pub(crate) fn is_whole(&self) -> bool {
        self.scan.is_whole()
    }

    /// Whether any arguments have come.
    pub(crate) fn has_arguments(&self) -> bool {
        self.scan.state != ScanState::Before
    }

    fn is_named(&self, name: &str) -> bool {
        self.name == name
    }

    fn set_arguments(&mut self, text: &str) {
        self.arguments.clear();
        self.arguments.push_str(text);
        self.scan = Scan::default();
        self.scan.read(text);
    }
}

/// The calls of one reply, in the order they were opened.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    pub(crate) all: Vec<OpenCall>,
    delta: u64,
    touches: u64,
}

/// What placing a piece did.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    /// The call it belongs to.
    pub(crate) at: usize,
    /// Whether the piece opened it.
    pub(crate) opened: bool,
    /// Whether the call got its name by it.
    pub(crate) named: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Place {
    /// A new call.
    Open,
    /// A new call of the name that an echo had announced.
    OpenEcho(usize),
    /// More of a call.
    Add(usize),
    /// A call, sent again whole.
    Update(usize),
    /// Nothing new about a call.
    Echo(usize),
}

impl Calls {
    /// Pieces that come now stand in another delta than those before.
    pub(crate) fn next_delta(&mut self) {
        self.delta += 1;
    }

    /// Whether this call was the last that anything came for.
    pub(crate) fn is_latest(&self, call: &OpenCall) -> bool {
        call.touched == self.touches
    }

    /// Gives the piece to the call it belongs to.
    pub(crate) fn take(&mut self, piece: &Piece<'_>) -> Placed {
        let place = self.place(piece);
        let (at, opened) = match place {
            Place::Open | Place::OpenEcho(_) => (self.all.len(), true),
            Place::Add(at) | Place::Update(at) | Place::Echo(at) => (at, false),
        };
        if opened {
            let name = match place {
                Place::OpenEcho(of) => self.all.get(of).map(|call| call.name.clone()).unwrap_or_default(),
                _ => String::new(),
            };
            self.all.push(OpenCall { name, delta: self.delta, ..OpenCall::default() });
        }
        self.touches += 1;
        let Some(call) = self.all.get_mut(at) else { return Placed { at, opened, named: false } };
        call.touched = self.touches;
        call.echoed = matches!(place, Place::Echo(_)) && piece.name.is_some();
        call.index = call.index.or(piece.index);
        if call.id.is_none() {
            call.id = piece.id.as_deref().map(str::to_owned);
        }
        let mut named = opened && !call.name.is_empty();
        if let Some(name) = piece.name.as_deref() {
            if call.name.is_empty() || name.starts_with(&call.name) {
                named = call.name != name;
                call.name.clear();
                call.name.push_str(name);
            } else {
                named = true;
                call.name.push_str(name);
            }
        }
        match (&place, &piece.arguments) {
            (Place::Echo(_), _) | (_, Arguments::Absent) => {}
            (Place::Update(_), Arguments::Text(text)) => call.set_arguments(text),
            (_, Arguments::Text(text)) => {
                call.arguments.push_str(text);
                call.scan.read(text);
            }
            (_, Arguments::Json(json)) => call.set_arguments(json),
        }
        Placed { at, opened, named }
    }

    fn place(&self, piece: &Piece<'_>) -> Place {
        if let Some(id) = piece.id.as_deref() {
            let same_id = |call: &OpenCall| call.id.as_deref() == Some(id);
            let agrees = |call: &OpenCall| call.index.is_none() || piece.index.is_none() || call.index == piece.index;
            let found = self.latest(|call| same_id(call) && agrees(call)).or_else(|| self.latest(same_id));
            if let Some((at, call)) = found {
                return self.by_id(at, call, piece);
            }
        }
        if piece.index.is_some() {
            if let Some((at, call)) = self.latest(|call| call.index == piece.index) {
                return self.by_index(at, call, piece);
            }
            return self.at_new_index(piece);
        }
        self.by_order(piece)
    }

    /// The piece has the id of this call.
    fn by_id(&self, at: usize, call: &OpenCall, piece: &Piece<'_>) -> Place {
        let Some(name) = piece.name.as_deref() else {
            return if call.is_whole() && piece.is_whole() { Place::Update(at) } else { Place::Add(at) };
        };
        if call.index.is_some() && piece.index.is_some() && call.index != piece.index {
            return Place::Open;
        }
        if !call.name.is_empty() && !call.is_named(name) {
            // A name in parts comes before any arguments.
            return if call.has_arguments() || piece.has_arguments() { Place::Open } else { Place::Add(at) };
        }
        if !call.is_whole() {
            return Place::Add(at);
        }
        if piece.is_whole() {
            if call.delta == self.delta { Place::Open } else { Place::Update(at) }
        } else if piece.begins_value() {
            Place::Open
        } else if piece.has_arguments() {
            Place::Add(at)
        } else {
            Place::Echo(at)
        }
    }

    /// The piece has the index of this call, and not its id.
    fn by_index(&self, at: usize, call: &OpenCall, piece: &Piece<'_>) -> Place {
        let same_name = piece.name.as_deref().is_none_or(|name| call.name.is_empty() || call.is_named(name));
        if piece.id.is_some() {
            if call.id.is_some() {
                return match piece.name {
                    // A server that makes up an id for every piece: no call begins in the middle of its arguments.
                    Some(_) if same_name && call.has_arguments() && !call.is_whole() && piece.has_arguments() && !piece.begins_value() => {
                        Place::Add(at)
                    }
                    Some(_) => Place::Open,
                    None if call.is_whole() => Place::Open,
                    None => Place::Add(at),
                };
            }
            // The call's id comes late, or this is another call.
            return if !same_name || (call.is_whole() && (piece.name.is_some() || piece.has_arguments())) {
                Place::Open
            } else {
                Place::Add(at)
            };
        }
        let Some(name) = piece.name.as_deref() else {
            return if call.echoed && piece.begins_value() { Place::OpenEcho(at) } else { Place::Add(at) };
        };
        if same_name {
            if !call.is_whole() {
                let twin = call.delta == self.delta && call.is_named(name) && !call.has_arguments() && !piece.has_arguments();
                return if twin { Place::Open } else { Place::Add(at) };
            }
            return if piece.begins_value() {
                Place::Open
            } else if piece.has_arguments() {
                Place::Add(at)
            } else {
                Place::Echo(at)
            };
        }
        let part_of_name = !call.has_arguments() && !piece.has_arguments() && call.delta != self.delta;
        if part_of_name { Place::Add(at) } else { Place::Open }
    }

    /// The piece has an index that no call has yet.
    fn at_new_index(&self, piece: &Piece<'_>) -> Place {
        if piece.name.is_some() {
            return Place::Open;
        }
        // Without a name it is hardly a new call. The first piece may have come without its index.
        let unplaced = self.latest(|call| call.index.is_none() && !call.is_whole() && (call.id.is_none() || piece.id.is_none()));
        if let Some((at, _)) = unplaced {
            return Place::Add(at);
        }
        match self.latest(|call| !call.is_whole()) {
            Some((at, call)) if piece.id.is_none() && call.has_arguments() && piece.has_arguments() && !piece.begins_value() => {
                Place::Add(at)
            }
            _ => Place::Open,
        }
    }

    /// The piece has no index, and no id that is known.
    fn by_order(&self, piece: &Piece<'_>) -> Place {
        // Deltas that list the calls side by side list them in the same order each time.
        let beside = || self.all.get(piece.position).map(|call| (piece.position, call));
        let found = if piece.among > 1 && self.all.len() == piece.among && piece.name.is_none() {
            beside()
        } else {
            self.latest(|call| !call.is_whole()).or_else(|| self.latest(|_| true))
        };
        let Some((at, call)) = found else { return Place::Open };
        let Some(name) = piece.name.as_deref() else {
            return if piece.id.is_some() && (call.is_whole() || (call.id.is_some() && piece.among > 1)) {
                Place::Open
            } else if call.echoed && piece.begins_value() {
                Place::OpenEcho(at)
            } else {
                Place::Add(at)
            };
        };
        let open = !call.is_whole() && call.delta != self.delta;
        if call.name.is_empty() && open {
            return Place::Add(at);
        }
        let continues = if call.has_arguments() {
            piece.has_arguments() && !piece.begins_value()
        } else {
            piece.has_arguments() && (piece.id.is_none() || call.id.is_none())
        };
        if open && call.is_named(name) && continues { Place::Add(at) } else { Place::Open }
    }

    /// The call that fits, and of several the one that a piece came for last.
    fn latest(&self, fits: impl Fn(&OpenCall) -> bool) -> Option<(usize, &OpenCall)> {
        self.all.iter().enumerate().filter(|(_, call)| fits(call)).max_by_key(|(_, call)| call.touched)
    }
}

/// Follows JSON text piece by piece, as far as it takes to tell where its one value ends.
#[derive(Debug, Default)]
struct Scan {
    state: ScanState,
    depth: usize,
    in_string: bool,
    escaped: bool,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum ScanState {
    /// Nothing but white space so far.
    #[default]
    Before,
    /// In an object, an array or a string.
    Inside,
    /// A number or a word, which only its surroundings end.
    Bare,
    /// The value has ended.
    After,
}

impl Scan {
    fn is_whole(&self) -> bool {
        self.state == ScanState::After
    }

    fn read(&mut self, text: &str) {
        for byte in text.bytes() {
            if self.in_string {
                if self.escaped {
                    self.escaped = false;
                } else if byte == b'\\' {
                    self.escaped = true;
                } else if byte == b'"' {
                    self.in_string = false;
                    if self.depth == 0 {
                        self.state = ScanState::After;
                    }
                }
                continue;
            }
            match self.state {
                ScanState::After | ScanState::Bare => return,
                ScanState::Before if byte.is_ascii_whitespace() => continue,
                ScanState::Before => self.state = if matches!(byte, b'{' | b'[' | b'"') { ScanState::Inside } else { ScanState::Bare },
                ScanState::Inside => {}
            }
            match byte {
                b'"' => self.in_string = true,
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        self.state = ScanState::After;
                    }
                }
                _ => {}
            }
        }
    }
}
