//! The engine: turns a tool list and what was said into the model's next reply. It knows nothing of agents.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use llguidance::Matcher;
use serde_json::Value;

use super::LocalError;
use super::forward::{Network, State};
use super::grammar::Grammars;
use super::prompt::{Piece, Said, ToolText, exchange, opening};
use super::tokens;

/// The most tokens of one reply. Reasoning takes about 25, a call about as many.
const REPLY: usize = 384;
/// The most tokens of reasoning; a model that thinks longer has lost the thread, and is made to answer.
const THINK: usize = 96;
/// The most tokens read and written in one exchange. The model was trained on 8,192; at about 8 ms for a token, more than
/// this is no use to anybody.
pub(crate) const CONTEXT: usize = 4096;
/// How many states are kept: the tool lists of a few agents, and the exchange that a turn left off. One is a few megabytes.
const KEPT: usize = 6;

/// A loaded model. Cheap to clone; clones share weights and kept states.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
}

struct Shared {
    network: Arc<Network>,
    grammars: Grammars,
    ids: Ids,
    /// States whose tokens may begin the next prompt, the most recently used last.
    kept: Mutex<Vec<Arc<State>>>,
    matchers: Mutex<Vec<(String, Matcher)>>,
}

/// The tokens that frame a reply.
struct Ids {
    start: u32,
    end_of_sequence: u32,
    end_of_turn: u32,
    think: u32,
    end_of_think: u32,
    calls: u32,
    end_of_calls: u32,
    newline: u32,
}

/// What one turn works on.
#[derive(Clone, Copy, Debug)]
pub struct Turn<'a> {
    /// Facts the request may lean on, such as today's date.
    pub facts: Option<&'a str>,
    /// The tools that may be called.
    pub tools: &'a [ToolText],
    /// What was said, oldest first; the last is a request or results.
    pub said: &'a [Said],
    /// When given, the reply is one call of this tool, without reasoning, whose free texts are among these spans.
    pub only_copy: Option<(&'a ToolText, &'a [String])>,
}

/// The model's reply.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reply {
    /// Its reasoning, usually one sentence.
    pub think: String,
    /// The calls it asks for, each as a tool's name and the arguments as JSON text.
    pub calls: Vec<(String, String)>,
    /// What it says besides.
    pub text: String,
    /// How sure it is of this reply, from 0 to 1.
    pub confidence: Option<f32>,
    /// Tokens read for this turn, those kept from earlier turns not counted.
    pub tokens_read: usize,
    /// Tokens written.
    pub tokens_written: usize,
}

impl Engine {
    /// Loads the model file at `path`, which the caller has verified.
    pub fn load(path: &Path) -> Result<Self, LocalError> {
        let network = Arc::new(Network::load(path)?);
        let unusable = |why: &str| LocalError::Unusable { path: path.to_path_buf(), why: why.into() };
        let tokenizer = &network.tokenizer;
        if !tokens::has_markers(tokenizer) || tokenizer.add_dummy_prefix {
            return Err(unusable("its vocabulary is not one this version knows"));
        }
        let id = |piece: &str| tokenizer.id_of(piece).ok_or_else(|| unusable("its vocabulary lacks a token"));
        let ids = Ids {
            start: tokenizer.bos_id,
            end_of_sequence: tokenizer.eos_id,
            end_of_turn: id("<|im_end|>")?,
            think: id("<think>")?,
            end_of_think: id("</think>")?,
            calls: id("<tool_call>")?,
            end_of_calls: id("</tool_call>")?,
            newline: tokens::encode(tokenizer, "\n").first().copied().ok_or_else(|| unusable("its vocabulary lacks a token"))?,
        };
        let grammars = Grammars::new(&network, ids.end_of_calls).map_err(|why| unusable(&why))?;
        let shared = Shared { network, grammars, ids, kept: Mutex::default(), matchers: Mutex::default() };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The model's next reply. Blocks for as long as that takes, about half a second; `cancel` is looked at between tokens.
    pub fn turn(&self, turn: &Turn<'_>, cancel: &AtomicBool) -> Result<Reply, LocalError> {
        let shared = &*self.shared;
        let mut prompt = vec![shared.ids.start];
        shared.append(&mut prompt, &opening(turn.facts, turn.tools));
        let opening = prompt.len();
        shared.append(&mut prompt, &exchange(turn.said));
        if prompt.len() + REPLY > CONTEXT.min(shared.network.context()) {
            return Err(LocalError::TooLong { tokens: prompt.len(), most: CONTEXT - REPLY });
        }

        let going = || !cancel.load(Ordering::Relaxed);
        let mut state = shared.longest_kept(&prompt);
        let known = state.len();
        if known < opening {
            let list = prompt.get(known..opening).unwrap_or_default();
            shared.network.read(&mut state, list, &going).ok_or(LocalError::Cancelled)?;
            shared.keep(&state);
        }
        // The prompt without its last token is kept too: arguments may be filled again from there.
        let rest = prompt.get(state.len()..prompt.len() - 1).unwrap_or_default();
        if !rest.is_empty() {
            shared.network.read(&mut state, rest, &going).ok_or(LocalError::Cancelled)?;
            shared.keep(&state);
        }
        let last = prompt.get(prompt.len() - 1..).unwrap_or_default();
        let hidden = shared.network.read(&mut state, last, &going).ok_or(LocalError::Cancelled)?;
        let matcher = match turn.only_copy {
            Some((tool, spans)) => shared.grammars.copying_matcher(tool, spans),
            None if turn.tools.is_empty() => None,
            None => shared.matcher(turn.tools),
        };
        let may_call = !turn.tools.is_empty();
        let calls_at_once = turn.only_copy.is_some() && matcher.is_some();
        let written = shared.write(&mut state, hidden, matcher, (may_call, calls_at_once), &going)?;
        let mut reply = shared.reply(&written, turn.tools);
        reply.confidence = shared.network.confidence(&state);
        reply.tokens_read = prompt.len() - known;
        reply.tokens_written = written.len();
        shared.keep(&state);
        Ok(reply)
    }
}

impl Shared {
    fn append(&self, ids: &mut Vec<u32>, pieces: &[Piece]) {
        let tokenizer = &self.network.tokenizer;
        for piece in pieces {
            match piece {
                Piece::Marker(marker) => ids.extend(tokenizer.id_of(marker)),
                Piece::Text(text) => ids.extend(tokens::encode(tokenizer, &tokens::plain(text))),
            }
        }
    }

    /// A copy of the kept state that has read the longest beginning of `prompt`, short of its last token, whose logits are
    /// still to be computed.
    fn longest_kept(&self, prompt: &[u32]) -> State {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |state: &State| state.len() < prompt.len() && prompt.starts_with(state.tokens());
        let best = kept.iter().enumerate().filter(|(_, state)| fits(state)).max_by_key(|(_, state)| state.len());
        let Some(best) = best.map(|(index, _)| index) else { return self.network.start() };
        let state = kept.remove(best);
        kept.push(Arc::clone(&state));
        drop(kept);
        State::clone(&state)
    }

    fn keep(&self, state: &State) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= KEPT {
            kept.remove(0);
        }
        kept.push(Arc::new(state.clone()));
    }

    fn matcher(&self, tools: &[ToolText]) -> Option<Matcher> {
        let key: String = tools.iter().map(ToolText::text).collect();
        let mut matchers = self.matchers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, matcher)) = matchers.iter().find(|(known, _)| *known == key) {
            return Some(matcher.deep_clone());
        }
        let matcher = self.grammars.matcher(tools)?;
        if matchers.len() >= KEPT {
            matchers.remove(0);
        }
        matchers.push((key, matcher.deep_clone()));
        Some(matcher)
    }

    /// Writes a reply greedily and returns its tokens.
    fn write(
        &self,
        state: &mut State,
        mut hidden: Vec<f32>,
        mut matcher: Option<Matcher>,
        (may_call, calls_at_once): (bool, bool),
        going: &dyn Fn() -> bool,
    ) -> Result<Vec<u32>, LocalError> {
        let ids = &self.ids;
        let mut written: Vec<u32> = Vec::new();
        let mut place = Place::Free;
        if calls_at_once {
            written.push(ids.calls);
            hidden = self.network.read(state, &written, going).ok_or(LocalError::Cancelled)?;
            place = Place::Calls;
        }
        while written.len() < REPLY {
            let next: Vec<u32> = match (place, matcher.as_mut()) {
                (Place::Calls, Some(matcher)) => {
                    let forced = matcher.compute_ff_tokens();
                    let next = if forced.is_empty() {
                        let allowed = matcher.compute_mask().map_err(|error| LocalError::Grammar(error.to_string()))?;
                        let logits = self.network.logits(&hidden);
                        vec![best(&logits, |token| allowed.is_allowed(token)).unwrap_or(ids.end_of_calls)]
                    } else {
                        forced
                    };
                    if next != [ids.end_of_calls] {
                        matcher.consume_tokens(&next).map_err(|error| LocalError::Grammar(error.to_string()))?;
                    }
                    if matcher.is_stopped() && next.last() != Some(&ids.end_of_calls) {
                        [next, vec![ids.end_of_calls]].concat()
                    } else {
                        next
                    }
                }
                (Place::Think(since), _) if written.len() - since > THINK => {
                    vec![ids.newline, ids.end_of_think, ids.newline]
                }
                _ => {
                    let logits = self.network.logits(&hidden);
                    let may = |token| token != ids.calls || may_call;
                    vec![best(&logits, may).unwrap_or(ids.end_of_sequence)]
                }
            };
            let Some(&last) = next.last() else { break };
            if last == ids.end_of_turn || last == ids.end_of_sequence {
                break;
            }
            written.extend(&next);
            hidden = self.network.read(state, &next, going).ok_or(LocalError::Cancelled)?;
            place = match place {
                _ if last == ids.end_of_calls => break,
                _ if last == ids.think => Place::Think(written.len()),
                _ if last == ids.calls => Place::Calls,
                Place::Think(_) if next.contains(&ids.end_of_think) => Place::Free,
                place => place,
            };
        }
        Ok(written)
    }

    fn reply(&self, written: &[u32], tools: &[ToolText]) -> Reply {
        let tokenizer = &self.network.tokenizer;
        let after = |tokens: &[u32], marker| tokens.iter().position(|&token| token == marker);
        let mut reply = Reply::default();
        let mut rest = written;
        if let (Some(open), Some(close)) = (after(rest, self.ids.think), after(rest, self.ids.end_of_think)) {
            tokenizer.decode(rest.get(open + 1..close).unwrap_or_default()).trim().clone_into(&mut reply.think);
            rest = rest.get(close + 1..).unwrap_or_default();
        }
        if let Some(open) = after(rest, self.ids.calls) {
            let close = after(rest, self.ids.end_of_calls).unwrap_or(rest.len());
            let calls = tokenizer.decode(rest.get(open + 1..close).unwrap_or_default());
            reply.calls = read_calls(&calls, tools);
            rest = rest.get(..open).unwrap_or_default();
        }
        tokenizer.decode(rest).trim().clone_into(&mut reply.text);
        reply
    }
}

/// Where in a reply the next token stands.
#[derive(Clone, Copy)]
enum Place {
    Free,
    /// In the reasoning, which began after this many tokens.
    Think(usize),
    Calls,
}

/// The calls in the text between the markers: equal ones merged, those of undeclared tools dropped.
fn read_calls(text: &str, tools: &[ToolText]) -> Vec<(String, String)> {
    let Ok(Value::Array(items)) = serde_json::from_str::<Value>(text) else {
        tracing::warn!(text, "the local model wrote calls that are not JSON; they are dropped");
        return Vec::new();
    };
    let mut calls: Vec<(String, String)> = Vec::new();
    for item in items {
        let name = item.get("name").and_then(Value::as_str).unwrap_or_default();
        if !tools.iter().any(|tool| tool.name() == name) {
            tracing::warn!(tool = name, "the local model called a tool that is not declared; the call is dropped");
            continue;
        }
        let arguments = item.get("arguments").map_or_else(|| "{}".to_owned(), Value::to_string);
        let call = (name.to_owned(), arguments);
        if !calls.contains(&call) {
            calls.push(call);
        }
    }
    calls
}

fn best(logits: &[f32], allowed: impl Fn(u32) -> bool) -> Option<u32> {
    let allowed = (0..).zip(logits).filter(|(token, _)| allowed(*token));
    allowed.max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(&a.0))).map(|(token, _)| token)
}
