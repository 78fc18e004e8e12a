//! Input that was posted: it joins once, in the order it was posted, where it may.

use std::collections::HashMap;
use std::sync::Arc;

use toolwright_core::{InputId, InputMode, Message, RunId};

use super::super::{Broken, broken};

const ONCE: &str = "posted input joins the transcript exactly once, in the order posted";
const THIS_RUN: &str = "input for one run joins that run or none";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Posted,
    Queued,
    Applied,
    /// It went back to its sender, or its run was over before it came.
    Returned,
}

pub(super) struct Input {
    id: InputId,
    mode: InputMode,
    messages: Vec<Arc<Message>>,
    only: Option<RunId>,
    /// Its position in the inbox.
    position: u64,
    stage: Stage,
    /// Whether it steers, as it was queued.
    steers: bool,
    /// It was queued for the run that is open now.
    here: bool,
}

/// All input of a thread, in the order it was posted.
#[derive(Default)]
pub(super) struct Inputs {
    all: Vec<Input>,
    by_id: HashMap<InputId, usize>,
    /// Everything before was queued, or went back.
    next: usize,
}

/// What the owner's model had said when input was taken; nothing is known where none was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Heard {
    Nothing,
    Something,
}

impl Inputs {
    pub(super) fn knows(&self, id: &InputId) -> bool {
        self.by_id.contains_key(id)
    }

    pub(super) fn posted(&mut self, id: &InputId, mode: &InputMode, messages: &[Arc<Message>], only: Option<&RunId>, position: u64) {
        self.by_id.insert(id.clone(), self.all.len());
        self.all.push(Input {
            id: id.clone(),
            mode: mode.clone(),
            messages: messages.to_vec(),
            only: only.cloned(),
            position,
            stage: Stage::Posted,
            steers: false,
            here: false,
        });
    }

    fn find(&mut self, id: &InputId) -> Result<(usize, &mut Input), Broken> {
        match self.by_id.get(id).and_then(|at| Some((*at, self.all.get_mut(*at)?))) {
            Some(found) => Ok(found),
            None => broken(ONCE, format!("nobody posted {id}")),
        }
    }

    /// `run`: the one that is open and has not to end.
    pub(super) fn queued(
        &mut self,
        id: &InputId,
        mode: &InputMode,
        messages: &[Arc<Message>],
        only: Option<&RunId>,
        run: Option<&RunId>,
    ) -> Result<(), Broken> {
        let next = self.next;
        let (at, input) = self.find(id)?;
        if input.stage != Stage::Posted || at < next {
            return broken(ONCE, format!("{id} is queued, and was {:?}", input.stage));
        }
        if input.messages != messages || input.only.as_ref() != only {
            return broken(ONCE, format!("{id} is queued as something else"));
        }
        if only.is_some() && only != run {
            return broken(THIS_RUN, format!("{id} for {only:?} is queued in {run:?}"));
        }
        if *mode != input.mode && run.is_some() {
            return broken("input steers as it was meant", format!("{id} is queued as {mode}"));
        }
        if *mode == InputMode::Steer && run.is_none() {
            return broken("nothing slips past a pending decision", format!("{id} steers while no run goes on"));
        }
        input.stage = Stage::Queued;
        input.steers = *mode == InputMode::Steer;
        input.here = true;
        let lost = self.all.iter().take(at).skip(next).find(|input| input.stage == Stage::Posted && input.only.is_none());
        if let Some(lost) = lost {
            return broken(ONCE, format!("{} is queued before {}, which came first", id, lost.id));
        }
        self.next = at + 1;
        Ok(())
    }

    /// The messages that join now.
    pub(super) fn applied(&mut self, id: &InputId, run: &RunId) -> Result<Vec<Arc<Message>>, Broken> {
        let first = self.all.iter().find(|input| input.stage == Stage::Queued && input.only.as_ref().is_none_or(|only| only == run));
        if first.map(|input| &input.id) != Some(id) {
            return broken(ONCE, format!("{id} joins {run}, and next is {:?}", first.map(|input| &input.id)));
        }
        let (_, input) = self.find(id)?;
        input.stage = Stage::Applied;
        Ok(input.messages.clone())
    }

    pub(super) fn returned(&mut self, id: &InputId, run: &RunId) -> Result<(), Broken> {
        let (_, input) = self.find(id)?;
        if input.stage != Stage::Queued || input.only.as_ref() != Some(run) {
            return broken(THIS_RUN, format!("{id} goes back from {run}, and was {:?} for {:?}", input.stage, input.only));
        }
        input.stage = Stage::Returned;
        Ok(())
    }

    pub(super) fn run_ends(&mut self, run: &RunId) -> Result<(), Broken> {
        for input in &mut self.all {
            if input.stage == Stage::Queued && input.only.as_ref() == Some(run) {
                return broken(THIS_RUN, format!("{run} ends, and {} still waits for it", input.id));
            }
            input.here = false;
        }
        Ok(())
    }

    /// Everything up to a position of the inbox is taken.
    pub(super) fn taken(&mut self, through: u64) -> Result<(), Broken> {
        for input in self.all.iter_mut().filter(|input| input.stage == Stage::Posted && input.position <= through) {
            if input.only.is_none() {
                return broken(ONCE, format!("{} is taken from the inbox and journaled nowhere", input.id));
            }
            input.stage = Stage::Returned;
        }
        Ok(())
    }

    /// Whether input steers the open run.
    pub(super) fn steers(&self, run: &RunId) -> bool {
        let mine = |input: &&Input| input.only.as_ref().is_none_or(|only| only == run);
        self.all.iter().filter(|input| input.stage == Stage::Queued && input.steers && input.here).any(|input| mine(&input))
    }

    /// Whether input waits for the next run, in the journal or in the inbox.
    pub(super) fn waits(&self) -> bool {
        self.all.iter().any(|input| input.only.is_none() && matches!(input.stage, Stage::Posted | Stage::Queued))
    }

    /// Whether it waits in the journal.
    pub(super) fn is_queued(&self) -> bool {
        self.all.iter().any(|input| input.only.is_none() && input.stage == Stage::Queued)
    }

    /// Nothing that waits is copied into a fork.
    pub(super) fn forget(&mut self) {
        for input in &mut self.all {
            if input.stage != Stage::Applied {
                input.stage = Stage::Returned;
            }
        }
        self.next = self.all.len();
    }

    /// What is left at the end: nothing, unless the thread waits.
    pub(super) fn all_joined(&self) -> Result<(), Broken> {
        match self.all.iter().find(|input| input.only.is_none() && input.stage != Stage::Applied && input.stage != Stage::Returned) {
            Some(left) => broken(ONCE, format!("{} is {:?} at the end", left.id, left.stage)),
            None => Ok(()),
        }
    }
}
