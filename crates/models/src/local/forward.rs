//! The network: Needle 3's forward pass over a state that can be kept and cloned.
//!
//! `needle-core` has the kernels and the weights' layout; its own key/value cache can neither be cloned nor be extended by
//! more than one token at a time, and both are what makes a turn cheap here: the state after the tool list is kept and
//! cloned, and a request, a tool's result or a run of tokens that a grammar forces is read in one batch. Logits are computed
//! for the last position only, and the confidence head is fed as positions pass, so scoring an answer costs no second pass.

use std::path::Path;

use needle_core::cq::CqWeight;
use needle_core::kernels::{rms_unit, rms_unit_to};
use needle_core::norm::zc_rms_norm_vec;
use needle_core::ops::{sigmoid, softmax_inplace};
use needle_core::v3::engram::apply_site;
use needle_core::v3::mhc::{Gates, LaneSite, mix_down, scatter_up};
use needle_core::v3::{
    AttnDims, KvStore, MhcLayer, ProbeHead, Ring, V3Config, V3Model, attend_step, engram_indices, hadamard_mlp, ngram_valid, norm_and_rope,
};
use needle_infer::cact::CactV3;
use needle_infer::sp_tokenizer::SpTokenizer;
use needle_infer::v3::{confidence_head, model_from_cact};
use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

use super::LocalError;

/// Positions computed side by side. Larger chunks read the packed weights less often and need more scratch memory.
const CHUNK: usize = 128;

/// More threads than this wait for each other longer than they work.
const MOST_THREADS: usize = 4;

/// Fewer positions than this are multiplied one by one.
const FEW: usize = 7;

/// The weights, the tokenizer and the confidence head of one model file. Immutable, shared by every turn.
pub(crate) struct Network {
    model: V3Model,
    pub(crate) tokenizer: SpTokenizer,
    head: Option<ProbeHead>,
    /// Threads of its own: a step is dozens of short parallel pieces, which must start at once.
    workers: ThreadPool,
}

/// Everything the network remembers of the tokens it has read.
#[derive(Clone)]
pub(crate) struct State {
    tokens: Vec<u32>,
    layers: Vec<LayerState>,
    /// For each memory site the values before its convolution, oldest first.
    memory: Vec<Vec<f32>>,
    pool: Option<Pool>,
}

#[derive(Clone)]
struct LayerState {
    keys: Vec<f32>,
    values: Vec<f32>,
    /// The last raw projections, oldest first, which the causal convolution of the next position reads.
    tails: [Vec<f32>; 3],
}

/// The confidence head's running sums: a softmax over positions that is rescaled when a larger score comes by.
#[derive(Clone)]
struct Pool {
    max: Vec<f32>,
    weight: Vec<f32>,
    sum: Vec<f32>,
}

impl State {
    /// The tokens read so far, in order.
    pub(crate) fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// How many tokens were read.
    pub(crate) fn len(&self) -> usize {
        self.tokens.len()
    }
}

impl Network {
    /// Reads a verified model file.
    pub(crate) fn load(path: &Path) -> Result<Self, LocalError> {
        let unusable = |why: String| LocalError::Unusable { path: path.to_path_buf(), why };
        let bytes = std::fs::read(path).map_err(|error| unusable(error.to_string()))?;
        let container = CactV3::from_bytes(bytes).map_err(|error| unusable(error.to_string()))?;
        let model = model_from_cact(&container).map_err(|error| unusable(error.to_string()))?;
        let blob = container.tokenizer_blob().ok_or_else(|| unusable("it has no tokenizer".into()))?;
        let tokenizer = SpTokenizer::from_blob(blob).map_err(|error| unusable(error.to_string()))?;
        let head = confidence_head(&container, &model.cfg).map_err(|error| unusable(error.to_string()))?;
        // One prepared activation serves several weights here, which holds only while they share their grouping.
        let shares =
            |weights: &[&CqWeight]| weights.windows(2).all(|pair| matches!(pair, [a, b] if a.in_feat == b.in_feat && a.group == b.group));
        let mhc = [&model.mhc.phi_pre, &model.mhc.phi_post, &model.mhc.phi_res];
        if !shares(&mhc) || !model.layers.iter().all(|l| shares(&[&l.q_proj, &l.k_proj, &l.v_proj, &l.gate_proj])) {
            return Err(unusable("its weights are grouped in a way this version does not know".into()));
        }
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS);
        let workers = ThreadPoolBuilder::new().num_threads(threads).thread_name(|index| format!("local-model-{index}"));
        let workers = workers.build().map_err(|error| unusable(error.to_string()))?;
        Ok(Self { model, tokenizer, head, workers })
    }

    /// The most tokens a state may hold.
    pub(crate) fn context(&self) -> usize {
        self.model.cfg.max_seq_len
    }

    /// A state that has read nothing.
    pub(crate) fn start(&self) -> State {
        let cfg = &self.model.cfg;
        let tail = cfg.qkv_conv_taps.saturating_sub(1);
        let layer = LayerState {
            keys: Vec::new(),
            values: Vec::new(),
            tails: [cfg.q_dim(), cfg.k_dim(), cfg.v_dim()].map(|width| vec![0.0; tail * width]),
        };
        State {
            tokens: Vec::new(),
            layers: vec![layer; cfg.num_layers],
            memory: vec![vec![0.0; memory_reach(cfg) * cfg.d_model]; cfg.engram.sites.len()],
            pool: self.head.as_ref().map(|head| Pool::new(head, cfg.d_model)),
        }
    }

    /// Reads `tokens` after what `state` has read and returns the final hidden vector, from which [`Self::logits`] tells the
    /// token that comes next. `None` when there was nothing to read or `keep_going` said no between two chunks; the state is then not to be used any more.
    pub(crate) fn read(&self, state: &mut State, tokens: &[u32], keep_going: &dyn Fn() -> bool) -> Option<Vec<f32>> {
        let mut last = None;
        for chunk in tokens.chunks(CHUNK) {
            if !keep_going() {
                return None;
            }
            last = Some(self.workers.install(|| self.read_chunk(state, chunk)));
        }
        last
    }

    /// How sure the model is of what it has written, from 0 to 1; `None` when the file has no confidence head.
    pub(crate) fn confidence(&self, state: &State) -> Option<f32> {
        let (head, pool) = (self.head.as_ref()?, state.pool.as_ref()?);
        pool.score(head, self.model.cfg.d_model)
    }

    /// The final hidden vector of the chunk's last position.
    fn read_chunk(&self, state: &mut State, tokens: &[u32]) -> Vec<f32> {
        let cfg = &self.model.cfg;
        let (n, d, lanes) = (tokens.len(), cfg.d_model, cfg.mhc_lanes);
        let start = state.tokens.len();
        state.tokens.extend_from_slice(tokens);

        let memory = self.recall(state, start, n);
        let (cos, sin) = rotary(cfg, start, n);

        // Every lane of a position's residual stream begins as the same scaled embedding.
        let mut stream = vec![0.0_f32; n * lanes * d];
        let scale = (d as f32).sqrt();
        for (&token, position) in tokens.iter().zip(stream.chunks_exact_mut(lanes * d)) {
            let (first, rest) = position.split_at_mut(d);
            self.model.embedding.dequantize_row((token as usize).min(cfg.vocab_size - 1), first);
            scale_by(first, scale);
            rest.chunks_exact_mut(d).for_each(|lane| lane.copy_from_slice(first));
            if let (Some(pool), Some(head)) = (state.pool.as_mut(), self.head.as_ref()) {
                pool.see(head, 0, first);
            }
        }

        let mut block = Block::new(cfg, n);
        for (index, layer) in state.layers.iter_mut().enumerate() {
            self.layer(index, layer, start, &memory, (&cos, &sin), &mut stream, &mut block);
            if let (Some(pool), Some(head)) = (state.pool.as_mut(), self.head.as_ref()) {
                let mut mean = vec![0.0_f32; d];
                for position in stream.chunks_exact(lanes * d) {
                    lane_mean(position, &mut mean);
                    pool.see(head, index + 1, &mean);
                }
            }
        }

        let mut hidden = vec![0.0_f32; d];
        if let Some(position) = stream.chunks_exact(lanes * d).last() {
            lane_mean(position, &mut hidden);
        }
        zc_rms_norm_vec(&mut hidden, &self.model.final_norm);
        hidden
    }

    /// A score for each token to come next.
    pub(crate) fn logits(&self, hidden: &[f32]) -> Vec<f32> {
        // Rows beyond the first so many are input only.
        let embedding = &self.model.embedding;
        let mut logits = self.workers.install(|| multiply(embedding, &prepare(embedding, hidden, 1), 1));
        logits.truncate(self.model.cfg.logit_rows());
        logits
    }

    /// What the hashed n-gram memory answers for `n` positions from `start`: per site keys and convolved values.
    fn recall(&self, state: &mut State, start: usize, n: usize) -> Vec<(Vec<f32>, Vec<f32>)> {
        let cfg = &self.model.cfg;
        let (memory, d) = (&cfg.engram, cfg.d_model);
        let longest = memory.orders.iter().copied().max().unwrap_or(1);
        let tables = memory.num_tables();
        // The hash of a position reads back `longest` tokens; those before the chunk are read along and their rows skipped.
        let before = start.min(longest.saturating_sub(1));
        let seen = state.tokens.get(start - before..).unwrap_or_default();
        let slots = engram_indices(seen, &memory.orders, memory.heads, memory.slots as u32, memory.seed_heads);

        let mut answers = Vec::with_capacity(self.model.engrams.len());
        for (site, tail) in self.model.engrams.iter().zip(&mut state.memory) {
            let mut fetched = vec![0.0_f32; n * tables * memory.sub_dim];
            let rows = slots.chunks_exact(tables).skip(before);
            for (t, (row, found)) in rows.zip(fetched.chunks_exact_mut(tables * memory.sub_dim)).enumerate() {
                for (table, (&slot, part)) in row.iter().zip(found.chunks_exact_mut(memory.sub_dim)).enumerate() {
                    if ngram_valid(start + t, table, &memory.orders, memory.heads) {
                        site.tables.dequantize_row(table * memory.slots + slot as usize, part);
                    }
                }
            }
            let keys = project(&site.key_proj, &fetched, n);
            let raw = project(&site.value_proj, &fetched, n);

            let reach = memory_reach(cfg);
            let mut history = std::mem::take(tail);
            history.extend_from_slice(&raw);
            let mut values = vec![0.0_f32; n * d];
            for (t, out) in values.chunks_exact_mut(d).enumerate() {
                for (j, tap) in site.taps.chunks_exact(d).enumerate() {
                    let (back, position) = (j * memory.conv_dilation, start + t);
                    if back > position || position < j * longest {
                        continue;
                    }
                    add_product(out, tap, row(&history, reach + t - back, d));
                }
            }
            history.drain(..history.len() - reach * d);
            *tail = history;
            answers.push((keys, values));
        }
        answers
    }

    #[allow(
        clippy::too_many_arguments,
        clippy::many_single_char_names,
        reason = "one step of one algorithm, whose vectors are known by these letters"
    )]
    fn layer(
        &self,
        index: usize,
        state: &mut LayerState,
        start: usize,
        memory: &[(Vec<f32>, Vec<f32>)],
        (cos, sin): (&[f32], &[f32]),
        stream: &mut [f32],
        block: &mut Block,
    ) {
        let (cfg, mhc) = (&self.model.cfg, &self.model.mhc);
        let (d, lanes) = (cfg.d_model, cfg.mhc_lanes);
        let Some(layer) = self.model.layers.get(index) else { return };
        let n = stream.len() / (lanes * d);
        let routing = MhcLayer {
            a_pre: at(&mhc.a_pre, index),
            a_post: at(&mhc.a_post, index),
            a_res: at(&mhc.a_res, index),
            b_pre: row(&mhc.b_pre, index, lanes),
            b_post: row(&mhc.b_post, index, lanes),
            b_res: row(&mhc.b_res, index, lanes * lanes),
        };

        // Mix the lanes of each position down to the block's input. The gates that spread the block's change over the lanes
        // afterwards read the same lanes, so they are computed here from the same prepared activation.
        let positions = stream.par_chunks_exact(lanes * d).zip(block.input.par_chunks_exact_mut(d));
        let gates = block.post.par_chunks_exact_mut(lanes).zip(block.mixing.par_chunks_exact_mut(lanes * lanes));
        positions.zip(gates).for_each(|((position, input), (post, mixing))| {
            let mut unit = vec![0.0_f32; lanes * d];
            rms_unit_to(position, &mut unit);
            let prepared = prepare(&mhc.phi_pre, &unit, 1);
            let mut pre = vec![0.0_f32; lanes];
            mhc.phi_pre.matvec_rows_prepared(&prepared, index * lanes, &mut pre);
            mhc.phi_post.matvec_rows_prepared(&prepared, index * lanes, post);
            mhc.phi_res.matvec_rows_prepared(&prepared, index * lanes * lanes, mixing);
            mix_down(position, &mut pre, &routing, index, lanes, d, input);
        });
        let mut x = block.input.clone();
        if let Some((keys, values)) = cfg.engram.site_of(index).and_then(|site| memory.get(site)) {
            for ((x, key), value) in x.chunks_exact_mut(d).zip(keys.chunks_exact(d)).zip(values.chunks_exact(d)) {
                apply_site(x, key, value, d);
            }
        }

        // Attention. The four projections read one prepared activation.
        let mut normed = x.clone();
        normed.chunks_exact_mut(d).for_each(|h| zc_rms_norm_vec(h, &layer.norm_in));
        let prepared = prepare(&layer.q_proj, &normed, n);
        let [tail_q, tail_k, tail_v] = &mut state.tails;
        let taps = cfg.qkv_conv_taps;
        let (gate, [q, k, v]) = rayon::join(
            || multiply(&layer.gate_proj, &prepared, n),
            || [&layer.q_proj, &layer.k_proj, &layer.v_proj].map(|weight| multiply(weight, &prepared, n)),
        );
        let mut q = convolve(q, tail_q, &layer.q_taps, cfg.q_dim(), taps);
        let mut k = convolve(k, tail_k, &layer.k_taps, cfg.k_dim(), taps);
        let v = convolve(v, tail_v, &layer.v_taps, cfg.v_dim(), taps);
        norm_and_rope(&mut q, &layer.q_norm, cos, sin, n, cfg.num_heads, cfg.qk_head_dim);
        norm_and_rope(&mut k, &layer.k_norm, cos, sin, n, cfg.num_kv_heads, cfg.qk_head_dim);
        state.keys.extend_from_slice(&k);
        state.values.extend_from_slice(&v);

        let dims = AttnDims {
            seq: 1,
            num_heads: cfg.num_heads,
            num_kv_heads: cfg.num_kv_heads,
            qk_head_dim: cfg.qk_head_dim,
            v_head_dim: cfg.v_head_dim,
        };
        let mut seen = vec![0.0_f32; n * cfg.attn_out_dim()];
        let kv = KvStore::F32 { k: &state.keys, v: &state.values };
        let positions = seen.par_chunks_exact_mut(cfg.attn_out_dim()).zip(q.par_chunks_exact(cfg.q_dim()));
        positions.enumerate().for_each(|(t, (out, q))| {
            let hi = start + t;
            let lo = cfg.attention_span(index).map_or(0, |window| (hi + 1).saturating_sub(window));
            attend_step(q, Ring { kv, slots: start + n, lo, hi }, dims, out);
        });
        seen.iter_mut().zip(&gate).for_each(|(s, &g)| *s *= sigmoid(g));
        let mut out = project(&layer.out_proj, &seen, n);

        // Attention residual, then the MLP's.
        let weight = sigmoid(layer.attn_gate);
        x.par_chunks_exact_mut(d).zip(out.par_chunks_exact_mut(d)).for_each(|(x, out)| {
            let mut mlp = vec![0.0_f32; d];
            zc_rms_norm_vec(out, &layer.post_norm);
            x.iter_mut().zip(out.iter()).for_each(|(x, &o)| *x += weight * o);
            out.copy_from_slice(x);
            zc_rms_norm_vec(out, &layer.pre_hada);
            hadamard_mlp(out, &layer.mlp, &self.model.perms, cfg.hada_n, &mut mlp);
            x.iter_mut().zip(&mlp).for_each(|(x, &m)| *x += m);
        });

        // Spread what the block changed over the lanes.
        let changes = x.par_chunks_exact_mut(d).zip(block.input.par_chunks_exact(d));
        let gates = block.post.par_chunks_exact_mut(lanes).zip(block.mixing.par_chunks_exact_mut(lanes * lanes));
        let positions = stream.par_chunks_exact_mut(lanes * d);
        positions.zip(changes).zip(gates).for_each(|((position, (x, input)), (post, res))| {
            x.iter_mut().zip(input).for_each(|(x, &u)| *x -= u);
            let site = LaneSite { layer: index, lanes, d_model: d };
            scatter_up(position, Gates { post, res }, x, &routing, site, &mut vec![0.0; lanes * d]);
        });
    }
}

/// Scratch of one chunk, allocated once for all layers.
struct Block {
    input: Vec<f32>,
    post: Vec<f32>,
    mixing: Vec<f32>,
}

impl Block {
    fn new(cfg: &V3Config, n: usize) -> Self {
        let (d, lanes) = (cfg.d_model, cfg.mhc_lanes);
        Self { input: vec![0.0; n * d], post: vec![0.0; n * lanes], mixing: vec![0.0; n * lanes * lanes] }
    }
}

impl Pool {
    fn new(head: &ProbeHead, d: usize) -> Self {
        let pairs = head.cells * head.probes_per_cell;
        Self { max: vec![f32::NEG_INFINITY; pairs], weight: vec![0.0; pairs], sum: vec![0.0; pairs * d] }
    }

    /// Adds one position's vector of one depth (0 is the embedding, `i + 1` what layer `i` left).
    fn see(&mut self, head: &ProbeHead, depth: usize, cell: &[f32]) {
        let d = cell.len();
        let scale = 1.0 / (d as f32).sqrt();
        let pairs = depth * head.probes_per_cell;
        for pair in pairs..pairs + head.probes_per_cell {
            let score = dot(cell, row(&head.probes, pair, d)) * scale;
            let (Some(max), Some(weight), Some(sum)) =
                (self.max.get_mut(pair), self.weight.get_mut(pair), self.sum.get_mut(pair * d..(pair + 1) * d))
            else {
                return;
            };
            if score > *max {
                // What was summed under the smaller maximum shrinks; at the first position it shrinks to nothing.
                let shrink = (*max - score).exp();
                *weight *= shrink;
                scale_by(sum, shrink);
                *max = score;
            }
            let share = (score - *max).exp();
            *weight += share;
            sum.iter_mut().zip(cell).for_each(|(s, &c)| *s += share * c);
        }
    }

    fn score(&self, head: &ProbeHead, d: usize) -> Option<f32> {
        let pairs = self.weight.len();
        let mut views = self.sum.clone();
        for ((view, &weight), &gain) in views.chunks_exact_mut(d).zip(&self.weight).zip(&head.gain) {
            scale_by(view, 1.0 / weight);
            rms_unit(view);
            scale_by(view, gain);
        }
        let scale = 1.0 / (d as f32).sqrt();
        let mut pooled = vec![0.0_f32; head.queries * d];
        for (index, (query, out)) in head.query.chunks_exact(d).zip(pooled.chunks_exact_mut(d)).enumerate() {
            let bias = row(&head.row_bias, index, pairs);
            let mut shares: Vec<f32> = views.chunks_exact(d).zip(bias).map(|(view, &b)| dot(view, query) * scale + b).collect();
            softmax_inplace(&mut shares);
            for (view, &share) in views.chunks_exact(d).zip(&shares) {
                out.iter_mut().zip(view).for_each(|(o, &x)| *o += share * x);
            }
        }
        let logit = dot(head.proj.get(..pooled.len())?, &pooled) + head.bias.first().copied().unwrap_or(0.0);
        Some(sigmoid(logit))
    }
}

/// How many positions back the memory's value convolution reads.
fn memory_reach(cfg: &V3Config) -> usize {
    cfg.engram.conv_taps.saturating_sub(1) * cfg.engram.conv_dilation
}

fn rotary(cfg: &V3Config, start: usize, n: usize) -> (Vec<f32>, Vec<f32>) {
    let half = cfg.qk_head_dim / 2;
    let frequencies: Vec<f32> = (0..half).map(|i| 1.0 / cfg.rope_theta.powf((2 * i) as f32 / cfg.qk_head_dim as f32)).collect();
    let angles = (start..start + n).flat_map(|p| frequencies.iter().map(move |f| p as f32 * f));
    angles.map(|a| (a.cos(), a.sin())).unzip()
}

fn lane_mean(lanes: &[f32], out: &mut [f32]) {
    out.fill(0.0);
    let mut count = 0.0_f32;
    for lane in lanes.chunks_exact(out.len()) {
        out.iter_mut().zip(lane).for_each(|(o, &x)| *o += x);
        count += 1.0;
    }
    scale_by(out, 1.0 / count);
}

/// `n` activations rotated into the domain in which the packed weights are stored.
fn prepare(weight: &CqWeight, inputs: &[f32], n: usize) -> Vec<f32> {
    let mut prepared = vec![0.0_f32; n * weight.prepared_len()];
    let inputs = inputs.chunks_exact(weight.in_feat);
    for (input, out) in inputs.zip(prepared.chunks_exact_mut(weight.prepared_len())) {
        weight.prepare_input(input, out);
    }
    prepared
}

/// The product of `weight` with `n` prepared activations, its rows shared out over two threads.
fn multiply(weight: &CqWeight, prepared: &[f32], n: usize) -> Vec<f32> {
    let rows = weight.out_feat;
    if n < FEW {
        // Decoding whole bytes of packed weights for each position anew beats sharing a slower decoding among a few.
        let mut out = vec![0.0_f32; n * rows];
        for (prepared, out) in prepared.chunks_exact(weight.prepared_len()).zip(out.chunks_exact_mut(rows)) {
            let (upper, lower) = out.split_at_mut(rows / 2);
            rayon::join(|| weight.matvec_rows_prepared(prepared, 0, upper), || weight.matvec_rows_prepared(prepared, rows / 2, lower));
        }
        return out;
    }
    let part = |first: usize, count: usize| {
        let mut out = vec![0.0_f32; n * count];
        weight.matmul_rows_prepared(prepared, n, first, count, &mut out, &mut vec![0.0; n]);
        out
    };
    let half = rows / 2;
    let (upper, lower) = rayon::join(|| part(0, half), || part(half, rows - half));
    let halves = upper.chunks_exact(half).zip(lower.chunks_exact(rows - half));
    halves.flat_map(|(upper, lower)| upper.iter().chain(lower)).copied().collect()
}

fn project(weight: &CqWeight, inputs: &[f32], n: usize) -> Vec<f32> {
    multiply(weight, &prepare(weight, inputs, n), n)
}

/// A causal depthwise convolution over `raw`, whose history is `tail`; leaves the new history in `tail`.
fn convolve(raw: Vec<f32>, tail: &mut Vec<f32>, taps: &[f32], width: usize, count: usize) -> Vec<f32> {
    if count == 0 {
        return raw;
    }
    let kept = tail.len();
    let mut history = std::mem::take(tail);
    history.extend_from_slice(&raw);
    let mut out = raw;
    for (t, out) in out.chunks_exact_mut(width).enumerate() {
        out.fill(0.0);
        for (j, tap) in taps.chunks_exact(width).enumerate() {
            add_product(out, tap, row(&history, count - 1 + t - j, width));
        }
    }
    history.drain(..history.len() - kept);
    *tail = history;
    out
}

fn row(rows: &[f32], index: usize, width: usize) -> &[f32] {
    rows.get(index * width..(index + 1) * width).unwrap_or_default()
}

fn at(values: &[f32], index: usize) -> f32 {
    values.get(index).copied().unwrap_or_default()
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    // Eight sums side by side, so that the compiler may use vector registers without reordering one sum.
    let mut sums = [0.0_f32; 8];
    for (a, b) in a.chunks_exact(8).zip(b.chunks_exact(8)) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum += a * b;
        }
    }
    sums.iter().sum()
}

fn scale_by(values: &mut [f32], factor: f32) {
    for value in values {
        *value *= factor;
    }
}

fn add_product(out: &mut [f32], a: &[f32], b: &[f32]) {
    for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
        *out += a * b;
    }
}

#[cfg(test)]
mod tests {
    use super::super::{tokens, weights};
    use super::*;

    const PROMPT: &str = "The name of the weekday of 31 December 1999, in \u{e9}t\u{e9} \u{1f600}: {\"date\":\"1999-12-31\"}";

    #[tokio::test]
    async fn reading_in_pieces_agrees_with_the_crates_own_pass() {
        let network = Network::load(&weights::ensure(|_| ()).await.unwrap()).unwrap();

        // The tokens are those of the tokenizer that the model was trained with.
        for text in [PROMPT, "", " ", "\n\n  a", include_str!("grammar.rs")] {
            for part in text.split_inclusive('\n') {
                assert_eq!(tokens::encode(&network.tokenizer, part), network.tokenizer.encode(part), "{part:?}");
            }
        }

        // A copied state is continued in pieces of every kind: many positions, a few, one.
        let ids = tokens::encode(&network.tokenizer, PROMPT);
        assert!(ids.len() > 20, "{}", ids.len());
        let (first, rest) = ids.split_at(9);
        let (few, rest) = rest.split_at(3);
        let mut state = network.start();
        network.read(&mut state, first, &|| true).unwrap();
        let mut state = state.clone();
        network.read(&mut state, few, &|| true).unwrap();
        let mut hidden = Vec::new();
        for id in rest {
            hidden = network.read(&mut state, &[*id], &|| true).unwrap();
        }
        let logits = network.logits(&hidden);
        let theirs = network.model.forward_sequence(&ids);
        let theirs = theirs.chunks_exact(logits.len()).last().unwrap();
        let largest = theirs.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
        for (ours, theirs) in logits.iter().zip(theirs) {
            assert!((ours - theirs).abs() < 1e-3 * largest, "{ours} {theirs}");
        }
        let head = network.head.as_ref().unwrap();
        let theirs = sigmoid(network.model.forward_head(&ids, head)[0]);
        assert!((network.confidence(&state).unwrap() - theirs).abs() < 1e-3);

        assert!(network.read(&mut state, &ids, &|| false).is_none());
        assert!(network.read(&mut state, &[], &|| true).is_none());
    }
}
