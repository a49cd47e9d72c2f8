-- Common to all scripts; each of them goes on below this part.
--
-- Times are milliseconds of this server's clock. Numbers stay below 2^53, where Lua's are
-- exact; `digits` writes them, because tostring() turns to exponents.

local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)

local function digits(number)
  return string.format('%.0f', number)
end

-- A number that a server's counters can go on with, or nil: anybody may have written here.
local function whole(text)
  return text and #text <= 15 and string.match(text, '^%d+$') and tonumber(text) or nil
end

-- Asks something of a key that is ours. Whoever put another type there has not taken it away:
-- it is deleted, and what was there is put together again. Any other error ends the script.
local function ask(command, key, ...)
  local answer = redis.pcall(command, key, ...)
  if type(answer) == 'table' and answer.err then
    if string.find(answer.err, 'WRONGTYPE', 1, true) then
      redis.call('DEL', key)
    end
    return redis.call(command, key, ...)
  end
  return answer
end

