//! Who asks: the secret that a request brings, as a bearer token (RFC 6750) or as the password of the Basic scheme
//! (RFC 7617), so that `curl -u :SECRET` works. Where no secret is asked for, none is looked at.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::header::{AUTHORIZATION, HeaderMap};

use super::problem::Refusal;
use crate::model::access::{Access, Caller, Credential, Right};

/// What a 401 carries: the schemes that are understood. A browser asks its user for the second.
pub(super) const CHALLENGE: &str =
    "Bearer realm=\"onced\", Basic realm=\"onced\", charset=\"UTF-8\"";

/// Finds out who sent the request.
///
/// # Errors
/// 401: no secret, one that is no credential's, or one that is another's than the user name says.
pub(super) fn caller(access: &Access, headers: &HeaderMap) -> Result<Caller, Refusal> {
    if !access.is_required() {
        return Ok(Caller::ANYBODY);
    }
    let mut given = headers.get_all(AUTHORIZATION).iter();
    let given = match (given.next(), given.next()) {
        (Some(one), None) => one.as_bytes(),
        (None, _) => {
            return Err(Refusal::unauthorized(
                "this server asks for a secret; send it as `Authorization: Bearer SECRET`, or as a password \
                 (`curl -u :SECRET`)",
            ));
        }
        (Some(_), Some(_)) => {
            return Err(Refusal::unauthorized(
                "Authorization is given twice; give it once",
            ));
        }
    };
    let found = match scheme(given) {
        Some((scheme, secret)) if scheme.eq_ignore_ascii_case(b"bearer") => {
            access.find(None, secret)
        }
        Some((scheme, pair)) if scheme.eq_ignore_ascii_case(b"basic") => basic(access, pair)?,
        _ => {
            return Err(Refusal::unauthorized(
                "Authorization is neither `Bearer SECRET` nor Basic with the secret as password",
            ));
        }
    };
    found.cloned().map(Caller::known).ok_or_else(|| {
        Refusal::unauthorized(
            "no credential of this server has that secret, or not under that user name; `onced token new` makes \
             one, and a reload takes it from the configuration",
        )
    })
}

/// A scheme and what follows it.
fn scheme(value: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = value.iter().position(|byte| *byte == b' ')?;
    let (scheme, rest) = value.split_at_checked(end)?;
    Some((scheme, rest.trim_ascii()))
}

/// The user name may be left out; one that is given has to be the credential's.
fn basic<'a>(access: &'a Access, pair: &[u8]) -> Result<Option<&'a Arc<Credential>>, Refusal> {
    let pair = STANDARD.decode(pair).ok();
    let parts = pair.as_deref().and_then(|pair| {
        let colon = pair.iter().position(|byte| *byte == b':')?;
        Some((pair.get(..colon)?, pair.get(colon + 1..)?))
    });
    match parts {
        Some((name, secret)) => Ok(access.find(Some(name).filter(|it| !it.is_empty()), secret)),
        None => Err(Refusal::unauthorized(
            "Basic is followed by the base64 of `USER:SECRET`; the user may be empty",
        )),
    }
}

/// The refusal of what a caller may not do.
pub(super) fn lacking(caller: &Caller, right: Right) -> Refusal {
    let (name, right_name) = (caller.name().unwrap_or_default(), right.name());
    let instead = match right {
        Right::Operate => "; a holder passes its token instead",
        _ => "",
    };
    Refusal::forbidden(format!(
        "the credential {name} lacks the right {right_name}{instead}; whoever keeps the configuration can add it"
    ))
}

/// Lets a caller have what is of all namespaces.
///
/// # Errors
/// 403.
pub(super) fn check_reaches_all(caller: &Caller) -> Result<(), Refusal> {
    if caller.reaches_all() {
        return Ok(());
    }
    let name = caller.name().unwrap_or_default();
    Err(Refusal::forbidden(format!(
        "the credential {name} is for some namespaces, and this is of all; use one without a list of namespaces"
    )))
}

/// Lets a caller go where his credential reaches.
///
/// # Errors
/// 403, with the namespace.
pub(super) fn check_reach(caller: &Caller, namespace: &str) -> Result<(), Refusal> {
    if caller.reaches(namespace) {
        return Ok(());
    }
    let name = caller.name().unwrap_or_default();
    Err(Refusal::forbidden(format!(
        "the credential {name} is not for the namespace {namespace}; use one of its own, or have it added to the \
         configuration"
    )))
}
