//! The sentences of calls that a service did not carry out.

use std::time::Duration;

use toolwright_tool::ToolError;

use super::http::{Answer, Call, Service, Session};
use super::shape::in_line;

/// A call that was surely not carried out.
pub(super) fn failed(action: &str, problem: &str) -> ToolError {
    ToolError::new(format!("can't {action}: {problem}")).named("ServiceError")
}

/// A call of which nobody knows whether it was carried out.
pub(super) fn unknown(service: Service, action: &str, why: &str) -> ToolError {
    let name = service.name;
    let message = format!("{name} was asked to {action}, and {why}; it may have been done, so look before asking for it again");
    ToolError::new(message).named("OutcomeUnknownError")
}

/// Too many requests, for longer than a call waits.
pub(super) fn limited(service: Service, action: &str, wait: Duration, moment: Option<String>) -> ToolError {
    let (name, seconds) = (service.name, wait.as_secs());
    let when = moment.map_or_else(|| "much later".to_owned(), |moment| format!("after {moment} (in {seconds} s)"));
    ToolError::new(format!("can't {action}: {name} takes no more requests for now; try again {when}")).named("RateLimitError")
}

/// An answer that is not what the service's own pages say.
pub(super) fn unreadable(service: Service, action: &str, status: u16) -> ToolError {
    let name = service.name;
    failed(action, &format!("{name} answered {status} with something that is no JSON; check that the base URL is that of its API"))
}

/// The sentence for a status that is no success.
pub(super) fn by_status(session: &Session<'_>, call: &Call, answer: &Answer) -> ToolError {
    let (service, credential) = (session.api.service, session.api.credential());
    let name = service.name;
    let said = answer.json().as_ref().and_then(service.said).map(|said| session.without_credential(&in_line(&said, 300)));
    let said = said.map_or_else(String::new, |said| format!(" ({said})"));
    let (action, subject) = (call.action(), call.subject());
    let (error, message) = match answer.status {
        401 => ("CredentialsError", format!("{name} does not accept {credential}{said}; put a valid one there")),
        403 => ("ForbiddenError", format!("{name} does not allow it{said}; give {credential} the right to {action}")),
        404 => ("NotFoundError", format!("{name} has no {subject}, or {credential} may not see it; check how it is written")),
        410 => ("NotFoundError", format!("{subject} is gone, or switched off{said}")),
        300..=399 => {
            let status = answer.status;
            (
                "ServiceError",
                format!(
                    "{name} answered {status}, a redirect to elsewhere, which is not followed with credentials; set the base URL to where its API is"
                ),
            )
        }
        status => ("ServiceError", format!("{name} refused it with {status}{said}; put right what it names")),
    };
    ToolError::new(format!("can't {action}: {message}")).named(error)
}
