//! How the servers that speak Chat Completions differ. One row each; the reasons stand beside the values.

use std::borrow::Cow;

/// How one server wants to be spoken to. Start from [`Switches::of`] or [`Switches::compatible`] and change fields.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Switches {
    /// The provider's name: the prefix of its models' names, and the key of its `provider_options`.
    pub provider: Cow<'static, str>,
    /// Where it is; `/chat/completions` is appended.
    pub base_url: Cow<'static, str>,
    /// The variable that holds another address, if there is one.
    pub base_url_var: Option<&'static str>,
    /// The variable that holds its key.
    pub key_var: Option<&'static str>,
    /// Whether it works without a key.
    pub key: Key,
    /// The model that is taken when only its key is found in the environment.
    pub default_model: Option<&'static str>,
    /// The role of the instructions.
    pub instructions: InstructionsRole,
    /// What becomes of system messages that are not the first.
    pub notes: Notes,
    /// What the limit on the reply's tokens is called.
    pub max_tokens: &'static str,
    /// What ids of calls have to look like.
    pub ids: IdShape,
    /// Whether usage in a stream has to be asked for, and may be.
    pub stream_usage: bool,
    /// Whether people's messages may hold images.
    pub images: bool,
    /// Where images of tool results go.
    pub result_images: ResultImages,
    /// Whether people's messages may hold files; otherwise a note names them (sdk-runtime MM-2).
    pub files: bool,
    /// Which reasoning is sent back.
    pub reasoning: ReasoningEcho,
    /// What arguments of earlier calls have to be.
    pub arguments: ArgumentsShape,
    /// Whether provider JSON of a call (a signature) is sent back on it.
    pub call_data: bool,
    /// Whether a tool message names its tool.
    pub result_name: bool,
    /// The word for "at least one tool".
    pub required: &'static str,
    /// What the seed is called, where there is one.
    pub seed: Option<&'static str>,
    /// Whether this model refuses this setting.
    pub refuses: fn(&str, Knob) -> bool,
}

/// Whether a key is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// Every request needs one.
    Required,
    /// A local server: sent where one is set.
    Optional,
}

/// The role of the instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstructionsRole {
    /// `system`.
    System,
    /// `developer`.
    Developer,
}

/// What becomes of system messages in the middle of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notes {
    /// They keep the role of the instructions.
    AsInstructions,
    /// They become user messages: the templates of many open models refuse a system message that is not the first.
    AsUser,
}

/// What ids of calls have to look like. Ours are sent where they fit; others are mapped, each to one of its own, within the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdShape {
    /// Anything.
    Any,
    /// At most this many of `A-Z a-z 0-9 _ -`.
    UpTo(usize),
    /// Exactly this many letters and digits.
    Alphanumeric(usize),
}

/// Where images of tool results go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultImages {
    /// Into the tool message, as content parts.
    Parts,
    /// Into one user message after all results of the turn, with a placeholder in the tool message: tool messages hold text only,
    /// and nothing may stand between them.
    UserMessage,
    /// Nowhere; the placeholder says that there was one.
    Placeholder,
}

/// Which reasoning is sent back, always only to the provider and model it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReasoningEcho {
    /// None.
    Never,
    /// Its text in this field of the assistant's message, in turns with calls since the last human message: these models go on thinking
    /// from there, and refuse such a turn without it.
    ToolTurns(&'static str),
    /// Its parts, signatures and encrypted forms in `reasoning_details`, wherever there are any.
    Details,
}

/// What arguments of earlier calls have to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgumentsShape {
    /// As the model wrote them; blank ones are `{}`.
    AsWritten,
    /// JSON of an object: the server reads them to render its template, and fails on each later request otherwise. What is malformed is
    /// wrapped as text.
    Object,
}

/// Settings that some models refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Knob {
    /// `temperature`.
    Temperature,
    /// `top_p`.
    TopP,
    /// `frequency_penalty` and `presence_penalty`.
    Penalties,
    /// `stop`.
    Stop,
}

/// OpenAI's o-series and GPT-5 answer 400 to any sampling setting; their chat variants take them.
fn openai_refuses(model: &str, knob: Knob) -> bool {
    let reasons = ["o1", "o3", "o4", "gpt-5"].iter().any(|family| model.starts_with(family)) && !model.contains("chat");
    // `stop` is refused as well, by all but the oldest of them.
    reasons && (knob != Knob::Stop || !model.starts_with("o1"))
}

/// xAI's reasoning models answer 400 to penalties and stop texts.
fn xai_refuses(model: &str, knob: Knob) -> bool {
    let reasons =
        (model.starts_with("grok-4") || model.starts_with("grok-3-mini") || model.contains("code")) && !model.contains("non-reasoning");
    reasons && matches!(knob, Knob::Penalties | Knob::Stop)
}

/// Mistral has no penalties on its reasoning models, and takes everything else.
fn mistral_refuses(model: &str, knob: Knob) -> bool {
    model.starts_with("magistral") && knob == Knob::Penalties
}

fn refuses_nothing(_: &str, _: Knob) -> bool {
    false
}

/// What most servers have in common.
const COMMON: Switches = Switches {
    provider: Cow::Borrowed("compatible"),
    base_url: Cow::Borrowed(""),
    base_url_var: None,
    key_var: None,
    key: Key::Required,
    default_model: None,
    instructions: InstructionsRole::System,
    notes: Notes::AsUser,
    max_tokens: "max_tokens",
    ids: IdShape::Any,
    stream_usage: true,
    images: true,
    result_images: ResultImages::UserMessage,
    files: false,
    reasoning: ReasoningEcho::Never,
    arguments: ArgumentsShape::AsWritten,
    call_data: false,
    result_name: false,
    required: "required",
    seed: Some("seed"),
    refuses: refuses_nothing,
};

/// Servers that run open models through their chat templates, usually on the user's own machine.
const LOCAL: Switches = Switches { key: Key::Optional, arguments: ArgumentsShape::Object, ..COMMON };

/// The table. Its order is the order in which keys are looked for in the environment: services first, then servers of one's own.
static TABLE: [Switches; 15] = [
    Switches {
        provider: Cow::Borrowed("openai"),
        base_url: Cow::Borrowed("https://api.openai.com/v1"),
        base_url_var: Some("OPENAI_BASE_URL"),
        key_var: Some("OPENAI_API_KEY"),
        default_model: Some("gpt-4o-mini"),
        // Newer models know instructions by this role; older ones take it for `system`.
        instructions: InstructionsRole::Developer,
        notes: Notes::AsInstructions,
        // `max_tokens` is deprecated here and refused by reasoning models.
        max_tokens: "max_completion_tokens",
        // Longer ids of calls are refused.
        ids: IdShape::UpTo(40),
        files: true,
        refuses: openai_refuses,
        ..COMMON
    },
    Switches {
        provider: Cow::Borrowed("openrouter"),
        base_url: Cow::Borrowed("https://openrouter.ai/api/v1"),
        key_var: Some("OPENROUTER_API_KEY"),
        default_model: Some("openai/gpt-4o-mini"),
        ids: IdShape::UpTo(40),
        files: true,
        // It passes reasoning on to the provider behind it, which checks signatures.
        reasoning: ReasoningEcho::Details,
        call_data: true,
        // Some of the providers behind it read earlier arguments.
        arguments: ArgumentsShape::Object,
        ..COMMON
    },
    Switches {
        provider: Cow::Borrowed("deepseek"),
        base_url: Cow::Borrowed("https://api.deepseek.com/v1"),
        key_var: Some("DEEPSEEK_API_KEY"),
        default_model: Some("deepseek-chat"),
        // Text only: an image part is a 400.
        images: false,
        result_images: ResultImages::Placeholder,
        // Thinking over several calls goes on only with its reasoning; in later turns it must be gone.
        reasoning: ReasoningEcho::ToolTurns("reasoning_content"),
        seed: None,
        ..COMMON
    },
    Switches {
        provider: Cow::Borrowed("groq"),
        base_url: Cow::Borrowed("https://api.groq.com/openai/v1"),
        key_var: Some("GROQ_API_KEY"),
        default_model: Some("llama-3.3-70b-versatile"),
        max_tokens: "max_completion_tokens",
        // Earlier arguments are rendered by the model's template.
        arguments: ArgumentsShape::Object,
        ..COMMON
    },
    Switches {
        provider: Cow::Borrowed("mistral"),
        base_url: Cow::Borrowed("https://api.mistral.ai/v1"),
        key_var: Some("MISTRAL_API_KEY"),
        default_model: Some("mistral-small-latest"),
        // "Tool call id has to be defined, 9 characters from a-z, A-Z, 0-9" is the rule its validation states.
        ids: IdShape::Alphanumeric(9),
        // Usage comes unasked, and `stream_options` is an unknown field, which is refused.
        stream_usage: false,
        result_name: true,
        required: "any",
        seed: Some("random_seed"),
        arguments: ArgumentsShape::Object,
        refuses: mistral_refuses,
        ..COMMON
    },
    Switches {
        provider: Cow::Borrowed("xai"),
        base_url: Cow::Borrowed("https://api.x.ai/v1"),
        key_var: Some("XAI_API_KEY"),
        default_model: Some("grok-4"),
        notes: Notes::AsInstructions,
        max_tokens: "max_completion_tokens",
        refuses: xai_refuses,
        ..COMMON
    },
    Switches {
        provider: Cow::Borrowed("together"),
        base_url: Cow::Borrowed("https://api.together.xyz/v1"),
        key_var: Some("TOGETHER_API_KEY"),
        default_model: Some("meta-llama/Llama-3.3-70B-Instruct-Turbo"),
        arguments: ArgumentsShape::Object,
        ..COMMON
    },
    Switches {
        provider: Cow::Borrowed("fireworks"),
        base_url: Cow::Borrowed("https://api.fireworks.ai/inference/v1"),
        key_var: Some("FIREWORKS_API_KEY"),
        default_model: Some("accounts/fireworks/models/llama-v3p3-70b-instruct"),
        // Usage comes unasked in the last chunk.
        stream_usage: false,
        arguments: ArgumentsShape::Object,
        ..COMMON
    },
    Switches {
        provider: Cow::Borrowed("moonshot"),
        base_url: Cow::Borrowed("https://api.moonshot.ai/v1"),
        key_var: Some("MOONSHOT_API_KEY"),
        default_model: Some("kimi-k2-0905-preview"),
        // Its thinking models lose the thread of several calls without their own reasoning.
        reasoning: ReasoningEcho::ToolTurns("reasoning_content"),
        seed: None,
        ..COMMON
    },
    Switches {
        provider: Cow::Borrowed("alibaba"),
        base_url: Cow::Borrowed("https://dashscope-intl.aliyuncs.com/compatible-mode/v1"),
        base_url_var: Some("DASHSCOPE_BASE_URL"),
        key_var: Some("DASHSCOPE_API_KEY"),
        default_model: Some("qwen-plus"),
        arguments: ArgumentsShape::Object,
        ..COMMON
    },
    Switches {
        provider: Cow::Borrowed("ollama"),
        base_url: Cow::Borrowed("http://127.0.0.1:11434/v1"),
        base_url_var: Some("OLLAMA_BASE_URL"),
        key_var: Some("OLLAMA_API_KEY"),
        default_model: Some("llama3"),
        ..LOCAL
    },
    Switches {
        provider: Cow::Borrowed("vllm"),
        base_url: Cow::Borrowed("http://127.0.0.1:8000/v1"),
        base_url_var: Some("VLLM_BASE_URL"),
        key_var: Some("VLLM_API_KEY"),
        ..LOCAL
    },
    Switches {
        provider: Cow::Borrowed("llamacpp"),
        base_url: Cow::Borrowed("http://127.0.0.1:8080/v1"),
        base_url_var: Some("LLAMACPP_BASE_URL"),
        key_var: Some("LLAMACPP_API_KEY"),
        ..LOCAL
    },
    Switches {
        provider: Cow::Borrowed("lmstudio"),
        base_url: Cow::Borrowed("http://127.0.0.1:1234/v1"),
        base_url_var: Some("LMSTUDIO_BASE_URL"),
        key_var: Some("LMSTUDIO_API_KEY"),
        ..LOCAL
    },
    // Any other server: its address is all that is known, so it gets the most careful form of everything.
    Switches {
        provider: Cow::Borrowed("compatible"),
        base_url_var: Some("COMPATIBLE_BASE_URL"),
        key_var: Some("COMPATIBLE_API_KEY"),
        call_data: true,
        ..LOCAL
    },
];

/// Other names people use.
const ALIASES: [(&str, &str); 7] = [
    ("dashscope", "alibaba"),
    ("qwen", "alibaba"),
    ("moonshotai", "moonshot"),
    ("kimi", "moonshot"),
    ("grok", "xai"),
    ("llama.cpp", "llamacpp"),
    ("lm-studio", "lmstudio"),
];

impl Switches {
    /// Every provider known by name.
    pub fn table() -> &'static [Self] {
        &TABLE
    }

    /// The row of a provider, by its name or another name of it.
    pub fn of(provider: &str) -> Option<&'static Self> {
        let name = ALIASES.iter().find(|(alias, _)| *alias == provider).map_or(provider, |(_, name)| name);
        TABLE.iter().find(|row| row.provider == name)
    }

    /// A server that is not in the table.
    pub fn compatible(provider: impl Into<Cow<'static, str>>, base_url: impl Into<Cow<'static, str>>) -> Self {
        Self { provider: provider.into(), base_url: base_url.into(), key: Key::Optional, call_data: true, ..LOCAL }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_found_by_its_name_and_has_an_address() {
        for row in Switches::table() {
            let found = Switches::of(&row.provider).unwrap();
            assert_eq!(found.provider, row.provider);
            assert!(!row.base_url.is_empty() || row.provider == "compatible");
            assert!(row.key == Key::Optional || row.key_var.is_some());
        }
        for (alias, _) in ALIASES {
            assert!(Switches::of(alias).is_some(), "{alias}");
        }
        assert!(Switches::of("anthropic").is_none());
    }

    // case: rust-reports D-62
    #[test]
    fn reasoning_models_get_no_sampling_settings() {
        let openai = Switches::of("openai").unwrap().refuses;
        for model in ["o1", "o3-mini", "o4-mini", "gpt-5", "gpt-5-mini"] {
            assert!(openai(model, Knob::Temperature) && openai(model, Knob::TopP), "{model}");
        }
        for model in ["gpt-4o", "gpt-4.1-nano", "gpt-5-chat-latest"] {
            assert!(!openai(model, Knob::Temperature), "{model}");
        }
        let xai = Switches::of("xai").unwrap().refuses;
        assert!(xai("grok-4", Knob::Stop) && !xai("grok-4", Knob::Temperature) && !xai("grok-4-fast-non-reasoning", Knob::Stop));
    }
}
