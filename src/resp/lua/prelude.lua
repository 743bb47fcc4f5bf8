-- The world of one script: what Redis gives its scripts, and nothing else. A state runs one script and is
-- dropped, so what a script does to this world ends with it.
local tools = ...
local pcall, xpcall, error, type, tostring, tonumber, setmetatable, select, unpack =
  pcall, xpcall, error, type, tostring, tonumber, setmetatable, select, unpack
local string, table, math = string, table, math

-- Redis hands the text of an error table out.
local function told(ok, err, ...)
  tools.check()
  if not ok and type(err) == "table" and type(err.err) == "string" then
    return false, err.err
  elseif not ok and type(err) == "userdata" then
    return false, tools.shown(err)
  end
  return ok, err, ...
end

-- What takes longer than its instructions tell is weighed before it runs.
for _, name in ipairs({ "find", "match", "gmatch", "gsub" }) do
  local plain = string[name]
  string[name] = function(text, pattern, ...)
    local refused = tools.weigh(text, pattern, name == "find" and select(2, ...))
    if refused then
      error(refused, 2)
    end
    return plain(text, pattern, ...)
  end
end
local rep = string.rep
string.rep = function(text, count, ...)
  -- A text that reads as a number is one to the library.
  count = tonumber(count) or count
  local refused = type(count) == "number" and tools.weigh_rep(text, count)
  if refused then
    error(refused, 2)
  end
  return rep(text, count, ...)
end
-- A text with `%q` is written byte by byte.
local format = string.format
string.format = function(...)
  local bytes = 0
  for at = 1, select("#", ...) do
    local part = select(at, ...)
    bytes = bytes + (type(part) == "string" and #part or 0)
  end
  local refused = bytes > 4096 and tools.weigh_rep("", bytes)
  if refused then
    error(refused, 2)
  end
  return format(...)
end
for _, name in ipairs({ "upper", "lower", "reverse" }) do
  local plain = string[name]
  string[name] = function(text)
    local refused = type(text) == "string" and tools.weigh_rep("", #text)
    if refused then
      error(refused, 2)
    end
    return plain(text)
  end
end
local sort = table.sort
table.sort = function(list, ...)
  local refused = type(list) == "table" and tools.weigh_rep("", #list * 64)
  if refused then
    error(refused, 2)
  end
  return sort(list, ...)
end
-- Lua goes from the end of the list to the position, wherever that is.
local insert = table.insert
table.insert = function(list, ...)
  if select("#", ...) == 2 and type(list) == "table" then
    local at = tonumber((...))
    if at and not (at >= 1 and at <= #list + 1) then
      error("bad argument #2 to 'insert' (position out of bounds)", 2)
    end
  end
  return insert(list, ...)
end
-- Lua counts the results in an int, which overflows.
local plain_unpack, most_results = unpack, 8000
local function bounded_unpack(list, first, last)
  local from = first == nil and 1 or tonumber(first)
  local to = last == nil and type(list) == "table" and #list or tonumber(last)
  if from and to then
    local small = from > -1e9 and from < 1e9 and to > -1e9 and to < 1e9
    if not (small and to - from < most_results) then
      error("too many results to unpack", 2)
    end
  end
  return plain_unpack(list, first, last)
end
string.gfind = string.gmatch
string.dump = nil
math.randomseed = function() end

local wrong = "ERR wrong number or type of arguments"
local redis = {
  LOG_DEBUG = 0, LOG_VERBOSE = 1, LOG_NOTICE = 2, LOG_WARNING = 3,
  REPL_NONE = 0, REPL_SLAVE = 2, REPL_REPLICA = 2, REPL_AOF = 1, REPL_ALL = 3,
  sha1hex = tools.sha1hex, REDIS_VERSION = tools.version, REDIS_VERSION_NUM = tools.version_number,
}

function redis.error_reply(text, ...)
  if type(text) ~= "string" or select("#", ...) > 0 then
    return { err = wrong }
  end
  if string.sub(text, 1, 1) == "-" then
    text = string.sub(text, 2)
  elseif not tools.has_blank(text) then
    text = "ERR " .. text
  end
  return { err = text }
end

function redis.status_reply(text, ...)
  if type(text) ~= "string" or select("#", ...) > 0 then
    return { err = wrong }
  end
  return { ok = text }
end

function redis.log(level, ...)
  if type(level) ~= "number" or select("#", ...) == 0 then
    error({ err = "ERR redis.log() requires two arguments or more." }, 0)
  end
  tools.log(level, ...)
end

function redis.setresp(version)
  if version ~= 2 then
    error({ err = "ERR scripts are answered in RESP2 here; setresp takes 2 alone" }, 0)
  end
end

-- There are no replicas, and a script is one entry of the journal anyway.
function redis.replicate_commands() return true end
function redis.set_repl() end
function redis.breakpoint() return false end
function redis.debug() end

local env = {
  _VERSION = _VERSION, assert = assert, error = error, getmetatable = getmetatable,
  ipairs = ipairs, next = next, pairs = pairs, rawequal = rawequal, rawget = rawget,
  rawset = rawset, select = select, setmetatable = setmetatable, tonumber = tonumber,
  tostring = tostring, type = type, unpack = bounded_unpack,
  string = string, table = table, math = math,
  redis = redis, server = redis, bit = tools.bit, cjson = tools.cjson,
}
env._G = env
env.pcall = function(...) return told(pcall(...)) end
-- While Lua runs a handler of xpcall nothing can end it: so it runs after the call that failed.
local function handled(handler, ok, ...)
  tools.check()
  if ok then
    return ok, ...
  end
  return ok, handler(...)
end
env.xpcall = function(called, handler) return handled(handler, pcall(called)) end
env.collectgarbage = function() return 0 end
env.loadstring = function(text) return tools.load(text) end

setmetatable(env, {
  __index = function(_, name)
    error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
  end,
  __newindex = function()
    error("Attempt to modify a readonly table", 2)
  end,
})

local function located(err)
  local text
  if type(err) == "table" and type(err.err) == "string" then
    text = err.err
  elseif type(err) == "userdata" then
    text = tools.shown(err, true)
  else
    text = "ERR " .. tostring(err)
  end
  return { err = text, line = tools.line() }
end

-- These two are no functions of Lua: `return redis.call(..)` would be a tail call then, and its line lost.
return env, function(script, call, caught)
  redis.call, redis.pcall = call, caught
  return xpcall(script, located)
end
