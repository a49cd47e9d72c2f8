//! The words of the API as schemas: their lists come from the types that parse and print them.
//!
//! Called by: the views and the descriptions of parameters.
//! Invariant: a word that the program knows is in the document, since both come from `ALL`.

use std::borrow::Cow;

use heatsink_control::entry::{Mitigation, Origin, Phase, Status};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::control::Guard;

macro_rules! words {
    ($($(#[doc = $doc:literal])+ $word:ident of $type:ident;)+) => {$(
        $(#[doc = $doc])+
        pub(crate) struct $word;

        impl PartialSchema for $word {
            fn schema() -> RefOr<Schema> {
                ObjectBuilder::new()
                    .schema_type(Type::String)
                    .description(Some(concat!($($doc),+).trim()))
                    .enum_values(Some($type::ALL.iter().map(|one| one.name())))
                    .into()
            }
        }

        impl ToSchema for $word {
            fn name() -> Cow<'static, str> {
                stringify!($word).into()
            }
        }
    )+};
}

words! {
    /// What is done about a hot key.
    MitigationName of Mitigation;
    /// Who brought a key into the registry.
    OriginName of Origin;
    /// Where a key stands in its life as a hot key.
    StatusName of Status;
    /// What keeps a cached copy from growing old: `tracking`, the server pushes invalidations;
    /// `announcements`, proxies tell each other of writes.
    GuardName of Guard;
    /// Where a split stands.
    PhaseName of Phase;
}
