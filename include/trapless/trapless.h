// All of libtrapless.
#ifndef TRAPLESS_TRAPLESS_H
#define TRAPLESS_TRAPLESS_H

#include "trapless/error.h"
#include "trapless/refusal.h"
#include "trapless/session.h"
#include "trapless/types.h"

#endif
